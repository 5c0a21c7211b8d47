package servers

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAClusterIsWholeAndReplacesALostMaster(t *testing.T) {
	t.Parallel()
	const masters = 3
	c := StartRedisCluster(t, masters, 1, RedisOptions{AppendOnly: "everysec"})
	if n := len(c.Nodes()); n != 2*masters || len(c.Addrs()) != n {
		t.Fatalf("%d nodes at %v, want %d", n, c.Addrs(), 2*masters)
	}
	for _, n := range c.Nodes() {
		info, err := askRedis(t.Context(), n.Addr(), "INFO", "replication")
		if err != nil {
			t.Fatal(err)
		}
		// A master has its replica, and a replica its master.
		if !strings.Contains(info, "\r\nconnected_slaves:1\r\n") && !strings.Contains(info, "\r\nmaster_link_status:up\r\n") {
			t.Errorf("%s is %q", n.Addr(), info)
		}
	}
	client := c.Client()
	byMaster := map[*Redis]string{}
	for i := range 40 {
		key := fmt.Sprintf("{%d}", i)
		m := c.MasterOf(key)
		byMaster[m] = key
		if err := client.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		// The node that a client is sent to has the key itself.
		if got, err := askRedis(t.Context(), m.Addr(), "GET", key); err != nil || got != fmt.Sprint(i) {
			t.Errorf("%s at %s is %q (%v), want %d", key, m.Addr(), got, err, i)
		}
		if c.MasterOf(key+"more") != m {
			t.Errorf("keys of one hash tag are with two masters")
		}
	}
	if len(byMaster) != masters {
		t.Errorf("keys are spread over %d masters, want %d", len(byMaster), masters)
	}

	for i, key := range slices.Collect(maps.Values(byMaster))[:2] {
		old := c.MasterOf(key)
		if i == 0 {
			old.Kill()
		} else {
			old.Pause()
		}
		began := time.Now()
		master := c.AwaitFailover(key, old)
		t.Logf("failover after %v", time.Since(began).Round(100*time.Millisecond))
		if master == old || c.MasterOf(key) != master {
			t.Errorf("the master of %s is %s, was %s", key, c.MasterOf(key).Addr(), old.Addr())
		}
		if err := c.Client().Set(t.Context(), key, "later", 0).Err(); err != nil {
			t.Errorf("after the failover: %v", err)
		}
		if i == 0 {
			old.Restart()
		} else {
			old.Resume()
		}
		c.AwaitWhole()
		if c.MasterOf(key) != master {
			t.Errorf("who comes back is the master of %s again", key)
		}
		if got, err := askRedis(t.Context(), old.Addr(), "INFO", "replication"); err != nil ||
			!strings.Contains(got, "\r\nrole:slave\r\n") || !strings.Contains(got, "\r\nmaster_link_status:up\r\n") {
			t.Errorf("who comes back is %q (%v), want a replica that follows", got, err)
		}
	}
}

func TestAClusterOfOneMaster(t *testing.T) {
	t.Parallel()
	c := StartRedisCluster(t, 1, 0, RedisOptions{})
	if err := c.Client().Set(t.Context(), "a", 1, 0).Err(); err != nil {
		t.Error(err)
	}
	if c.MasterOf("a") != c.Nodes()[0] {
		t.Error("the only node is not the master")
	}
}

func TestTheLatestElectionDecidesWhoIsMaster(t *testing.T) {
	t.Parallel()
	all := [][2]int{{0, clusterSlots - 1}}
	a, b := peer{master: true, epoch: 3, slots: all}, peer{master: true, epoch: 4, slots: all}
	replica := peer{epoch: 4}
	before := map[string]peer{"a": a, "b": replica}
	after := map[string]peer{"a": replica, "b": b}
	for name, tt := range map[string]struct {
		views []map[string]peer
		want  string
	}{
		"the old one speaks first": {[]map[string]peer{before, after}, "b"},
		"the old one speaks last":  {[]map[string]peer{after, before}, "b"},
		"nobody has heard of it":   {[]map[string]peer{before, before}, "a"},
		"nobody is master":         {[]map[string]peer{{"a": replica}}, ""},
		"nobody answers":           {nil, ""},
	} {
		if got, ok := latestMaster(tt.views, 5); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, tt.want)
		}
	}
}

func TestTheViewOfANode(t *testing.T) {
	t.Parallel()
	const text = "" +
		"aa 127.0.0.1:20001@20101,host myself,master - 0 0 7 connected 0-5460 5462 [5461->-bb] [9-<-cc]\n" +
		"bb 127.0.0.1:20002@20102 slave aa 0 1714 7 connected\n" +
		"cc 127.0.0.1:20003@20103 master,fail? - 17 16 3 connected 5461\n" +
		"dd 127.0.0.1:20004@20104 master,fail - 17 16 2 disconnected 5463-16383\n" +
		"ee 127.0.0.1:20005@20105 handshake - 0 0 0 disconnected\n" +
		"ff :0@0 slave,noaddr aa 0 0 7 disconnected\n"
	got, err := parseNodes(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]peer{
		"127.0.0.1:20001": {master: true, linked: true, epoch: 7, slots: [][2]int{{0, 5460}, {5462, 5462}}},
		"127.0.0.1:20002": {linked: true, epoch: 7},
		"127.0.0.1:20003": {master: true, epoch: 3, slots: [][2]int{{5461, 5461}}},
		"127.0.0.1:20004": {master: true, epoch: 2, slots: [][2]int{{5463, 16383}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for slot, addr := range map[int]string{0: "127.0.0.1:20001", 5460: "127.0.0.1:20001", 5461: "127.0.0.1:20003", 5462: "127.0.0.1:20001", 16383: "127.0.0.1:20004"} {
		for at, p := range got {
			if p.serves(slot) != (at == addr) {
				t.Errorf("slot %d is served by %s: %v, want by %s", slot, at, p.serves(slot), addr)
			}
		}
	}
	for text, want := range map[string]string{
		"aa 127.0.0.1:20001@20101 master - 0 0 7":               "has 7 fields",
		"aa 127.0.0.1:20001 master - 0 0 7 connected":           "no bus port",
		"aa 127.0.0.1:20001@20101 master - 0 0 x connected":     "epoch",
		"aa 127.0.0.1:20001@20101 master - 0 0 7 connected a":   "slot",
		"aa 127.0.0.1:20001@20101 master - 0 0 7 connected 1-b": "slot",
	} {
		if got, err := parseNodes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %+v (%v), want an error that says %q", text, got, err, want)
		}
	}
}

func FuzzParseNodes(f *testing.F) {
	f.Add("aa 127.0.0.1:20001@20101 myself,master - 0 0 7 connected 0-5460 5462 [5461->-bb]\n")
	f.Add("bb 127.0.0.1:20002@20102 slave aa 0 1714 7 connected\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		peers, err := parseNodes(text)
		if err != nil {
			return
		}
		// Each line is read by itself, so that lines that are there twice
		// change nothing.
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		again, err := parseNodes(text + text)
		if err != nil || !reflect.DeepEqual(peers, again) {
			t.Errorf("%q is %+v, twice it is %+v (%v)", text, peers, again, err)
		}
	})
}
