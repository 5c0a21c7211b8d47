package fanout_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/fanout"
)

func TestGroupsAreConsecutiveAndAtMostK(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n, k int
		want [][]int
	}{
		{0, 3, nil},
		{1, 3, [][]int{{0}}},
		{3, 1, [][]int{{0}, {1}, {2}}},
		{6, 3, [][]int{{0, 1, 2}, {3, 4, 5}}},
		{7, 3, [][]int{{0, 1, 2}, {3, 4, 5}, {6}}},
		{2, 1 << 62, [][]int{{0, 1}}},
	} {
		got, err := fanout.Groups(numbers(tc.n), tc.k)
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%d items by %d: %v, error %v, want %v", tc.n, tc.k, got, err, tc.want)
		}
	}
	for _, k := range []int{0, -1} {
		if _, err := fanout.Groups(numbers(3), k); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("k is %d", k)) {
			t.Errorf("k %d: %v", k, err)
		}
	}
}

func TestAGroupDoesNotGrowIntoTheNext(t *testing.T) {
	t.Parallel()
	items := numbers(4)
	groups, err := fanout.Groups(items, 2)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(groups[0], 99)
	if items[2] != 2 {
		t.Errorf("items are %v after an append to the first group", items)
	}
}

func TestComposeKeepsOrderAndShapeForEveryNumberOfAgents(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		agents string
		k      int
		want   string
	}{
		{"a", 1, "seq(par0(a))"},
		{"a", 3, "seq(par0(a))"},
		{"a b c", 1, "seq(par0(a) par1(b) par2(c))"},
		{"a b c", 2, "seq(par0(a b) par1(c))"},
		{"a b c", 3, "seq(par0(a b c))"},
	} {
		got, err := fanout.Compose(strings.Fields(tc.agents), tc.k,
			func(group int, agents []string) (string, error) {
				return fmt.Sprintf("par%d(%s)", group, strings.Join(agents, " ")), nil
			},
			func(groups []string) (string, error) {
				return "seq(" + strings.Join(groups, " ") + ")", nil
			})
		if err != nil || got != tc.want {
			t.Errorf("%q by %d: %s, error %v, want %s", tc.agents, tc.k, got, err, tc.want)
		}
	}
}

func TestWhatIsComposedKeepsItsAgentsWhenTheCallersSliceChanges(t *testing.T) {
	t.Parallel()
	agents := []string{"a", "b", "c"}
	var kept [][]string
	if _, err := fanout.Compose(agents, 2,
		func(_ int, group []string) (string, error) {
			kept = append(kept, group)
			return "", nil
		},
		func([]string) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	clear(agents)
	if got := fmt.Sprint(kept); got != "[[a b] [c]]" {
		t.Errorf("groups are %s after the caller's slice was cleared", got)
	}
}

func TestComposeNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	parallel := func(group int, agents []string) (string, error) {
		if agents[0] == "bad" {
			return "half made", errBranch
		}
		return agents[0], nil
	}
	sequence := func(groups []string) (string, error) {
		if len(groups) == 3 {
			return "half made", errBranch
		}
		return groups[0], nil
	}
	for _, tc := range []struct {
		name     string
		agents   []string
		k        int
		parallel func(int, []string) (string, error)
		sequence func([]string) (string, error)
		want     string
	}{
		{"no agents", nil, 2, parallel, sequence, "agents is empty"},
		{"k zero", []string{"a"}, 0, parallel, sequence, "k is 0"},
		{"no parallel", []string{"a"}, 1, nil, sequence, "parallel is nil"},
		{"no sequence", []string{"a"}, 1, parallel, nil, "sequence is nil"},
		{"parallel fails", []string{"a", "bad"}, 1, parallel, sequence, "group 1: the branch failed"},
		{"sequence fails", []string{"a", "b", "c"}, 1, parallel, sequence, "sequence of 3 groups: the branch failed"},
	} {
		got, err := fanout.Compose(tc.agents, tc.k, tc.parallel, tc.sequence)
		if err == nil || !strings.Contains(err.Error(), tc.want) || got != "" {
			t.Errorf("%s: %q, %v, want the error %q", tc.name, got, err, tc.want)
		}
		if strings.Contains(tc.want, "failed") && !errors.Is(err, errBranch) {
			t.Errorf("%s: %v does not match its cause", tc.name, err)
		}
	}
}
