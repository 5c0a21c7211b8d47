package servers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// peer is a node of a Redis Cluster as one of its nodes sees it.
type peer struct {
	master bool
	linked bool // the node hears of it
	epoch  int64
	slots  [][2]int // first and last
}

// serves reports whether the peer is the master of a slot.
func (p peer) serves(slot int) bool {
	return p.master && slices.ContainsFunc(p.slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// latestMaster returns the address of the master of a slot. Where nodes do not
// agree, because one of them has not heard of an election, the one of the
// latest election is it.
func latestMaster(views []map[string]peer, slot int) (addr string, ok bool) {
	epoch := int64(-1)
	for _, view := range views {
		for at, p := range view {
			if p.serves(slot) && p.epoch > epoch {
				addr, epoch = at, p.epoch
			}
		}
	}
	return addr, epoch >= 0
}

// parseNodes reads the reply to CLUSTER NODES, by address. Each line is "ID
// HOST:PORT@BUSPORT[,HOSTNAME] FLAGS MASTER PING PONG EPOCH LINK SLOT…", a slot
// being one number, a range or, in brackets, one that moves
// (https://redis.io/docs/latest/commands/cluster-nodes/).
func parseNodes(text string) (map[string]peer, error) {
	peers := map[string]peer{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("node %q has %d fields, want 8 or more", line, len(f))
		}
		addr, _, ok := strings.Cut(f[1], "@")
		if !ok {
			return nil, fmt.Errorf("node %q: address %q has no bus port", line, f[1])
		}
		flags := strings.Split(f[2], ",")
		if slices.Contains(flags, "handshake") || slices.Contains(flags, "noaddr") {
			continue // not of the cluster yet, or no more
		}
		p := peer{
			master: slices.Contains(flags, "master"),
			linked: f[7] == "connected" && !slices.Contains(flags, "fail") && !slices.Contains(flags, "fail?"),
		}
		var err error
		if p.epoch, err = strconv.ParseInt(f[6], 10, 64); err != nil {
			return nil, fmt.Errorf("node %q: epoch: %w", line, err)
		}
		for _, slot := range f[8:] {
			if strings.HasPrefix(slot, "[") {
				continue
			}
			first, last, ok := strings.Cut(slot, "-")
			if !ok {
				last = first
			}
			from, err := strconv.Atoi(first)
			if err != nil {
				return nil, fmt.Errorf("node %q: slot: %w", line, err)
			}
			to, err := strconv.Atoi(last)
			if err != nil {
				return nil, fmt.Errorf("node %q: slot: %w", line, err)
			}
			p.slots = append(p.slots, [2]int{from, to})
		}
		peers[addr] = p
	}
	return peers, nil
}
