package fpmbus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// startEtcd is Debian's etcd; its port.
func startEtcd(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		missing(t, "etcd")
	}
	var urls []string
	for range 2 {
		urls = append(urls, "http://"+reserved(t))
	}
	cmd := exec.Command("etcd", "--data-dir", t.TempDir(), "--listen-client-urls", urls[0], "--advertise-client-urls", urls[0],
		"--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1], "--initial-cluster", "default="+urls[1], "--unsafe-no-fsync")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return urls[0]
}

func TestEtcdDiscovery(t *testing.T) {
	at := startEtcd(t)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	discover := EtcdDiscovery([]string{"http://127.0.0.1:1", at + "/"}, client) // the first does not answer
	ctx := context.Background()
	eventually(t, "etcd answers", func() bool { got, err := discover(ctx); return err == nil && len(got) == 0 })
	put := func(key, value string) {
		t.Helper()
		body := must[[]byte](t)(json.Marshal(map[string][]byte{"key": []byte(key), "value": []byte(value)}))
		resp, err := client.Post(at+"/v3/kv/put", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	channel := `{"type":"EventChannel","scope":{"kind":"endpoint","endpoint":{"namespace":"ns","component":"c","name":"e"}},"topic":%q,"instance_id":7587888160958627,"transport":{"kind":"Zmq","config":{"endpoint":%q}}}`
	p := startPeer(t, "plane", "tcp", "10", "0", "1", Topic)
	endpoint := p.says()["bound"].(string)
	put("v1/event_channels/namespace/ns/component/c/endpoint/e/topic/forward-pass-metrics/1", fmt.Sprintf(channel, Topic, endpoint))
	put("v1/event_channels/namespace/ns/component/c/endpoint/e/topic/kv-events/1", fmt.Sprintf(channel, "kv-events", "tcp://127.0.0.1:1"))
	put("v1/event_channels0", "not below the prefix")
	put("v1/instances/x", "{")
	if got, err := discover(ctx); err != nil || !slices.Equal(got, []Channel{{endpoint, Scope{"ns", "c", "e"}}}) {
		t.Fatalf("%+v, %v", got, err)
	}
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Retry: quick}, Discover: discover, Every: 20 * time.Millisecond}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "k", Sink: k}}})
	eventually(t, "connected", func() bool { s := b.Sources(); return len(s) == 2 && s[1].State == Connected })
	p.tell("go")
	eventually(t, "all messages", func() bool { return k.count() == 10 })
}
