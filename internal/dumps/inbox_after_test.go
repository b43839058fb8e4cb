package dumps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/trace"
)

func TestInboxMoreAfterItWasClosed(t *testing.T) {
	for _, restart := range []bool{false, true} {
		x := newBox(t, nil)
		again := func() {
			if restart {
				x.reopen()
				x.after(0)
			}
		}
		x.take(message{rollout: 7, upload: "a", samples: []int{1}})
		x.take(message{rollout: 7, upload: "b", final: true, samples: []int{5}})
		x.after(20 * time.Minute)
		x.want("r/rollout_7.pt [1 5] incomplete")
		again()
		equal(t, x.take(message{rollout: 7, upload: "a", samples: []int{1}}), Receipt{"r", "train", 7, 1, 2, true, false})
		x.refused(RefusedConflict, 409, message{rollout: 7, upload: "b", part: 1})
		// The rest of a long rollout.
		equal(t, x.take(message{rollout: 7, upload: "a", part: 1, samples: []int{2}}), Receipt{"r", "train", 7, 1, 3, false, false})
		again()
		x.after(14 * time.Minute)
		equal(t, x.take(message{rollout: 7, upload: "a", samples: []int{1}}), Receipt{"r", "train", 7, 1, 3, true, false})
		again()
		x.after(20 * time.Minute)
		x.want("r/rollout_7.attempt1.pt [1 2 5] incomplete")
		again()
		x.take(message{rollout: 7, upload: "a", part: 2, final: true, samples: []int{3}})
		x.after(time.Minute)
		x.want("r/rollout_7.attempt2.pt [1 2 3 5]")
		x.idle() // nothing is kept once it is whole
		again()
		equal(t, x.take(message{rollout: 7, upload: "a", part: 1, samples: []int{2}}).Again, true)

		// A job that was restarted ends the wait for what broke off.
		x.take(message{rollout: 8, upload: "a", samples: []int{1}})
		x.after(20 * time.Minute)
		x.take(message{rollout: 8, upload: "b", final: true, samples: []int{1, 2}})
		x.after(time.Minute)
		x.want("r/rollout_8.pt [1] incomplete", "r/rollout_8.attempt1.pt [1 2]")
		x.idle()
		x.refused(RefusedLate, 409, message{rollout: 8, upload: "a", part: 1})

		// So does time.
		x.take(message{rollout: 9, unnamed: true, samples: []int{1}})
		x.after(20 * time.Minute)
		x.want("r/rollout_9.pt [1] incomplete")
		again()
		x.take(message{rollout: 9, unnamed: true, part: 1, samples: []int{2}})
		x.after(20 * time.Minute)
		x.want("r/rollout_9.attempt1.pt [1 2] incomplete")
		x.refused(RefusedBusy, 503, message{rollout: 9, unnamed: true, id: "a restart", samples: []int{3}})
		again()
		if !restart { // who waits for the files to go is forgotten with the process
			x.after(0)
			x.take(message{rollout: 9, unnamed: true, id: "a restart", final: true, samples: []int{3}})
			x.after(time.Minute)
			x.want("r/rollout_9.attempt2.pt [3]")
		}
		x.after(23 * time.Hour)
		x.after(2 * time.Hour)
		x.idle()
		x.after(25 * time.Hour)
		equal(t, len(x.rollouts), 0)
	}
}

func TestInboxKeepsWhatThereIsRoomFor(t *testing.T) {
	x := newBox(t, func(o *InboxOptions) { o.MaxBatches = 4 })
	for id := range int64(3) {
		x.take(message{rollout: id, samples: []int{1}})
		x.after(20 * time.Minute)
	}
	x.take(message{rollout: 3})
	x.refused(RefusedFull, 503, message{rollout: 0, part: 1, final: true})
	equal(t, len(x.got), 3)
	x.after(0) // the two oldest go
	x.refused(RefusedLate, 409, message{rollout: 0, part: 1, final: true})
	x.got = nil
	x.take(message{rollout: 2, part: 1, final: true, samples: []int{2}})
	x.after(time.Minute)
	x.want("r/rollout_2.attempt1.pt [1 2]")
	equal(t, x.Status().Batches, 1)
}

func TestInboxReceiverFails(t *testing.T) {
	x := newBox(t, nil)
	x.fail = errors.New("the store is full")
	x.take(message{rollout: 1, final: true, samples: []int{1}})
	x.take(message{rollout: 2, samples: []int{1}})
	x.after(2 * time.Second)
	s := x.Status()
	if len(s.Rollouts) != 2 || s.Rollouts[0].State != "dumped" || !strings.Contains(s.Rollouts[0].Err, "the store is full") || s.Rollouts[1].State != "receiving" ||
		s.Rollouts[1].Samples != 1 || s.Rollouts[1].Age != 2*time.Second || s.Rollouts[1].Final || s.Batches != 1 || s.MaxBytes != 4<<30 {
		t.Errorf("%+v", s)
	}
	x.fail = nil
	x.after(999 * time.Millisecond)
	x.want()
	x.after(time.Millisecond)
	x.want("r/rollout_1.pt [1]")
	// After a restart it is asked at once, and in the end no more.
	x.fail = errors.New("it does not like this one")
	x.take(message{rollout: 2, part: 1, final: true, samples: []int{2}})
	x.after(time.Minute)
	x.fail = nil
	x.reopen()
	x.after(0)
	x.want("r/rollout_2.pt [1 2]")
	x.fail = errors.New("never")
	x.take(message{rollout: 3, final: true, samples: []int{3}})
	for range 30 {
		x.after(time.Hour)
	}
	x.idle()
	equal(t, x.Dropped()[droppedReceiver], 1)
	if _, err := os.Stat(filepath.Join(x.dir, "r/rollout_3.pt")); err != nil {
		t.Error(err)
	}
}

func TestInboxPrunes(t *testing.T) {
	x := newBox(t, func(o *InboxOptions) { o.KeepDumps = 2 })
	at := time.Now().Add(-time.Hour)
	dump := func(run, kind string, id int64) {
		x.take(message{run: run, kind: kind, rollout: id, final: true, samples: []int{int(id)}})
		x.after(time.Minute)
		if len(x.got) > 0 {
			at = at.Add(time.Second)
			if err := os.Chtimes(x.got[len(x.got)-1].Path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	dumpsLeft := func() string {
		var out []string
		for _, f := range x.files() {
			if strings.HasSuffix(f, ".pt") {
				out = append(out, f)
			}
		}
		return strings.Join(out, " ")
	}
	for id := range int64(4) {
		dump("a", trace.Train, id)
	}
	dump("a", trace.Eval, 0)
	dump("b", trace.Train, 9)
	equal(t, dumpsLeft(), "a/rollout_2.pt a/rollout_3.pt a/rollout_eval_0.pt b/rollout_9.pt")
	equal(t, x.Dropped()[droppedPruned], 2)
	x.Inbox.o.KeepDumps, x.Inbox.o.KeepBytes = 0, 1
	x.fail, x.only = errors.New("not yet"), "c"
	dump("c", trace.Train, 1) // it stays
	dump("d", trace.Train, 1)
	equal(t, dumpsLeft(), "c/rollout_1.pt d/rollout_1.pt")
}
