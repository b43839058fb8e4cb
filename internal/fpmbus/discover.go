package fpmbus

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// What discovery may be at most.
const (
	maxDiscovery      = 16 << 20 // bytes of a file or an answer
	maxDiscoveryFiles = 16384
)

// channelPrefix is where Dynamo keeps event channels, in every backend.
const channelPrefix = "v1/event_channels/"

// eventChannel is the value that Dynamo stores for a publisher.
type eventChannel struct {
	Type  string `json:"type"`
	Scope struct {
		Kind     string `json:"kind"`
		Endpoint struct {
			Namespace string `json:"namespace"`
			Component string `json:"component"`
			Name      string `json:"name"`
		} `json:"endpoint"`
		Component struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"component"`
		Namespace json.RawMessage `json:"namespace"`
	} `json:"scope"`
	Topic     string `json:"topic"`
	Transport struct {
		Kind   string `json:"kind"`
		Config struct {
			Endpoint string `json:"endpoint"`
		} `json:"config"`
	} `json:"transport"`
}

// channelOf reads one entry. ok is false for entries of other topics, transports and types. key may be "".
func channelOf(key string, value []byte) (c Channel, ok bool, err error) {
	var v eventChannel
	if err := json.Unmarshal(value, &v); err != nil {
		return c, false, fmt.Errorf("fpmbus: discovery entry %q: %w", key, err)
	}
	if v.Type != "EventChannel" || v.Transport.Kind != "Zmq" || v.Topic != Topic {
		return c, false, nil
	}
	if v.Transport.Config.Endpoint == "" {
		return c, false, fmt.Errorf("fpmbus: discovery entry %q has no transport.config.endpoint", key)
	}
	c.Endpoint = v.Transport.Config.Endpoint
	switch e := v.Scope.Endpoint; {
	case e.Namespace != "":
		c.Scope = Scope{e.Namespace, e.Component, e.Name}
	case v.Scope.Component.Namespace != "":
		c.Scope = Scope{Namespace: v.Scope.Component.Namespace, Component: v.Scope.Component.Name}
	default:
		c.Scope = scopeOfKey(key)
	}
	return c, true, nil
}

// scopeOfKey reads v1/event_channels/namespace/NS/component/C/endpoint/E/topic/T/ID, with and without the
// endpoint's part.
func scopeOfKey(key string) (s Scope) {
	i := strings.Index(key, channelPrefix)
	if i < 0 {
		return s
	}
	parts := strings.Split(key[i+len(channelPrefix):], "/")
	for i := 0; i+1 < len(parts); i += 2 {
		switch parts[i] {
		case "namespace":
			s.Namespace = unescape(parts[i+1])
		case "component":
			s.Component = unescape(parts[i+1])
		case "endpoint":
			s.Endpoint = unescape(parts[i+1])
		case "topic":
			return s
		}
	}
	return s
}

// FileDiscovery reads publishers from a file that holds a JSON list of {key, value}, or from a directory
// of Dynamo's file backend, whose files hold one value each. A file that is no JSON is read over: the
// directory holds other things too, and one that is just being written is read the next time.
func FileDiscovery(path string) Discover {
	return func(ctx context.Context) ([]Channel, error) {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("fpmbus: discovery: %w", err)
		}
		if !info.IsDir() {
			b, err := readSmall(path)
			if err != nil {
				return nil, fmt.Errorf("fpmbus: discovery: %w", err)
			}
			return channelsOfList(path, b)
		}
		var out []Channel
		n := 0
		err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil || !d.Type().IsRegular() {
				return nil // it went while we looked
			}
			if n++; n > maxDiscoveryFiles {
				return fmt.Errorf("fpmbus: discovery: more than %d files below %s: name the directory of one deployment", maxDiscoveryFiles, path)
			}
			b, err := readSmall(name)
			if err != nil || !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
				return nil
			}
			rel, _ := filepath.Rel(path, name)
			if rel, err = url.PathUnescape(rel); err != nil {
				rel = name
			}
			if c, ok, err := channelOf(filepath.ToSlash(rel), b); err == nil && ok {
				out = append(out, c)
			}
			return nil
		})
		return out, err
	}
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDiscovery+1))
	if err == nil && len(b) > maxDiscovery {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxDiscovery)
	}
	return b, err
}

func channelsOfList(where string, b []byte) ([]Channel, error) {
	var list []struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("fpmbus: discovery: %s is no list of {key, value}: %w", where, err)
	}
	var out []Channel
	for _, e := range list {
		c, ok, err := channelOf(e.Key, e.Value)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, c)
		}
	}
	return out, nil
}

// EtcdDiscovery asks etcd for publishers through its JSON gateway. endpoints are tried in turn
// (http://HOST:2379); client nil takes one with a timeout of 5 s.
func EtcdDiscovery(endpoints []string, client *http.Client) Discover {
	if client == nil {
		client = &http.Client{Timeout: 5 * time.Second}
	}
	end := []byte(channelPrefix)
	end[len(end)-1]++
	ask, _ := json.Marshal(map[string]string{ // of strings: it cannot fail
		"key":       base64.StdEncoding.EncodeToString([]byte(channelPrefix)),
		"range_end": base64.StdEncoding.EncodeToString(end),
	})
	return func(ctx context.Context) ([]Channel, error) {
		err := errors.New("fpmbus: discovery: no etcd endpoint is named")
		for _, e := range endpoints {
			var out []Channel
			if out, err = askEtcd(ctx, client, strings.TrimSuffix(e, "/")+"/v3/kv/range", ask); err == nil {
				return out, nil
			}
		}
		return nil, err
	}
}

func askEtcd(ctx context.Context, client *http.Client, at string, ask []byte) ([]Channel, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(ask))
	if err != nil {
		return nil, fmt.Errorf("fpmbus: discovery: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fpmbus: discovery: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery+1))
	if err != nil || len(b) > maxDiscovery || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fpmbus: discovery: %s answered %s with %d bytes (%v): is this etcd's client port?", at, resp.Status, len(b), err)
	}
	var answer struct {
		KVs []struct {
			Key   []byte `json:"key"`
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return nil, fmt.Errorf("fpmbus: discovery: the answer of %s: %w", at, err)
	}
	var out []Channel
	for _, kv := range answer.KVs {
		c, ok, err := channelOf(string(kv.Key), kv.Value)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, c)
		}
	}
	return out, nil
}
