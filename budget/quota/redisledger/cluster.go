package redisledger

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookEvery is how often the client of a Cluster is asked at most to look who its masters are.
const lookEvery = time.Second

// masters has the client of a Cluster look who its masters are when one of them does not
// answer. By itself it looks once a minute, or when a server tells it that a key has moved. A
// master that is gone tells nobody, and to dial it again and again takes the client as long as an
// operation may take, so that it never asks another one.
type masters struct{ looked atomic.Int64 }

// lost is told of an operation that has failed, and when, since the ledger was made.
func (m *masters) lost(client redis.UniversalClient, err error, now time.Duration) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok || isAnswer(err) {
		return
	}
	last := m.looked.Load()
	if last != 0 && now-time.Duration(last) < lookEvery || !m.looked.CompareAndSwap(last, int64(max(now, 1))) {
		return
	}
	cluster.ReloadState(context.Background()) // in a goroutine of the client
}

// isAnswer reports whether an error is one of the server.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
