package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// askRedis sends one command over a connection of its own and returns its
// reply: a status, a number or a string. It is for servers that are not ready
// yet, of which a client with a pool of connections would make more than one
// error.
func askRedis(ctx context.Context, addr string, command ...string) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, redisCommand(command)); err != nil {
		return "", err
	}
	reply, err := readRedisReply(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("%s at %s: %w", strings.Join(command, " "), addr, err)
	}
	return reply, nil
}

// redisCommand encodes a command as an array of bulk strings (RESP,
// https://redis.io/docs/latest/develop/reference/protocol-spec/).
func redisCommand(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}

// maxReply bounds what a reply may claim to be long.
const maxReply = 1 << 20

// readRedisReply reads a simple string, an error, an integer or a bulk string.
func readRedisReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok || line == "" {
		return "", fmt.Errorf("reply %q is not RESP", line)
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 || n > maxReply {
			return "", fmt.Errorf("a reply of length %q", rest)
		}
		text := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, text); err != nil {
			return "", err
		}
		return string(text[:n]), nil
	default:
		return "", fmt.Errorf("reply %q is neither a string nor a number", line)
	}
}
