package servers

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

func TestRepliesOfRedis(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reply, want, err string }{
		{"+PONG\r\n", "PONG", ""},
		{":12182\r\n", "12182", ""},
		{"$5\r\na\r\nbc\r\n", "a\r\nbc", ""},
		{"$0\r\n\r\n", "", ""},
		{"-LOADING Redis is loading\r\n", "", "LOADING Redis is loading"},
		{"$-1\r\n", "", `length "-1"`},
		{"$99999999999\r\n", "", `length "99999999999"`},
		{"$5\r\nab", "", "unexpected EOF"},
		{"*1\r\n+a\r\n", "", "neither"},
		{"+PONG\n", "", "not RESP"},
		{"\r\n", "", "not RESP"},
		{"", "", "EOF"},
	} {
		got, err := readRedisReply(bufio.NewReader(strings.NewReader(tt.reply)))
		if got != tt.want || (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q is %q (%v), want %q (%s)", tt.reply, got, err, tt.want, tt.err)
		}
	}
}

func FuzzReadRedisReply(f *testing.F) {
	f.Add("$3\r\nabc\r\n")
	f.Add("-ERR\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		reply, err := readRedisReply(bufio.NewReader(strings.NewReader(text)))
		if err != nil && reply != "" {
			t.Errorf("%q is both %q and %v", text, reply, err)
		}
		bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		if got, err := readRedisReply(bufio.NewReader(strings.NewReader(bulk))); err != nil || got != text {
			t.Errorf("%q is %q (%v), want %q", bulk, got, err, text)
		}
	})
}

func TestAnyBytesCanBeAskedFor(t *testing.T) {
	t.Parallel()
	r := SharedRedis(t)
	key := "a b\r\n\"'\x00ÿ" + t.Name()
	if err := r.Client().Set(t.Context(), key, "value\r\n", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := askRedis(t.Context(), r.Addr(), "GET", key); err != nil || got != "value\r\n" {
		t.Errorf("it is %q (%v)", got, err)
	}
}
