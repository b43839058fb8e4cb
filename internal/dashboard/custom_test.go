package dashboard

import (
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

const customYAML = `
rollscope:
  signals:
    - id: reward_rate
      title: Rewards per second
      unit: 1/s
      kind: rate
      metric: my_rewards_total
    - id: draft_share
      kind: share
      unit: ratio
      sources:
        - backend: sglang
          num: [{metric: "sglang:drafts_kept_total", ranks: leader}]
          den: [{metric: "sglang:drafts_total", ranks: leader}]
  boards:
    - id: mine
      title: My run
      sections:
        - title: Rewards
          panels:
            - {title: Rewards, signal: reward_rate, by: engine}
            - title: Buffer
              unit: requests
              view: stat
              targets: [{expr: "sum(my_buffer_size)", legend: buffered}]
        - title: Engines
          panels: [{signal: ttft}]
`

func TestCustomSignalsAndBoards(t *testing.T) {
	cfg, err := config.Load([]byte(customYAML), "rollscope.yaml")
	if err != nil {
		t.Fatal(err)
	}
	signals := CustomSignals(cfg.Rollscope.Signals)
	cat, err := signal.Default().With(signals)
	if err != nil {
		t.Fatal(err)
	}
	extra, err := Custom(cat, cfg.Rollscope.Boards)
	if err != nil {
		t.Fatal(err)
	}
	b, ok := Find(Boards(cat, extra...), "mine")
	if !ok || !b.Custom || len(b.Sections) != 2 || len(b.Sections[0].Panels) != 2 {
		t.Fatalf("the board is not there as written: %+v", b)
	}
	rewards, buffer, ttft := b.Sections[0].Panels[0], b.Sections[0].Panels[1], b.Sections[1].Panels[0]
	if rewards.Problem != "" || !strings.Contains(rewards.Targets[0].Expr, "my_rewards_total") || rewards.Unit != "1/s" {
		t.Errorf("panel of the user's signal: %+v", rewards)
	}
	if buffer.View != Stat || buffer.Targets[0].Expr != "sum(my_buffer_size)" || buffer.ID != "buffer" {
		t.Errorf("panel of PromQL: %+v", buffer)
	}
	if ttft.Title != "Time to first token" || len(ttft.Targets) != 2 {
		t.Errorf("panel of a built-in signal: %+v", ttft)
	}
	if s, _ := cat.Signal("reward_rate"); !s.Custom || s.Sources[0].Backend != engine.Other {
		t.Errorf("the user's signal: %+v", s)
	}
	if s, _ := cat.Signal("draft_share"); s.Title != "draft_share" || s.Sources[0].Backend != engine.SGLang || s.Sources[0].Num[0].Ranks != signal.RankLeader {
		t.Errorf("the user's share: %+v", s)
	}
	for flavour, o := range flavours {
		data, err := Grafana(cat, b, o)
		if err != nil || !strings.Contains(string(data), "my_buffer_size") {
			t.Errorf("%s: %v", flavour, err)
		}
	}
}

func TestCustomBoardsThatCannotBe(t *testing.T) {
	cat := signal.Default()
	_, err := Custom(cat, []config.Board{
		{ID: "golden", Title: "Mine", Line: 4},
		{ID: "mine", Title: "Mine", Line: 9, Sections: []config.Section{{Panels: []config.Panel{
			{Title: "A", Signal: "no_such"},
			{Title: "B", Targets: []config.PanelTarget{{Expr: "sum("}}},
		}}}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`config:4: board "golden": a built-in board has this id`,
		`config:9: board "mine": panel "A": there is no signal "no_such"`,
		`config:9: board "mine": panel "B": "sum(": `,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	b := Boards(cat, Board{ID: "x", Title: "x", Sections: []Section{row("x", sig("no_such"))}})
	if p := b[len(b)-1].Sections[0].Panels[0]; p.Problem == "" {
		t.Errorf("a panel without its signal has no problem: %+v", p)
	}
}

func TestSearch(t *testing.T) {
	boards := Boards(signal.Default())
	for query, want := range map[string]string{
		"": "golden", "SGLang": "golden sglang dynamo-sglang", "disaggregation slime": "pd", "GPU dcgm": "gpus", "nothing such": "",
	} {
		found := Search(boards, query)
		ids := map[string]bool{}
		for _, b := range found {
			ids[b.ID] = true
		}
		for _, id := range strings.Fields(want) {
			if !ids[id] {
				t.Errorf("%q does not find %s", query, id)
			}
		}
		if want == "" && query != "" && len(found) > 0 {
			t.Errorf("%q finds %d boards", query, len(found))
		}
	}
	if _, ok := Find(boards, "rollscope-golden"); !ok {
		t.Error("a board is not found by its Grafana uid")
	}
}
