package scale_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/scale"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func member(name, phase string, age time.Duration) scale.Member {
	return scale.Member{Name: name, UID: "uid-" + name, Version: "1", Phase: phase, Priority: 3, Created: epoch.Add(-age)}
}

func names(targets []scale.Target) []string {
	var result []string
	for _, t := range targets {
		result = append(result, t.Name)
	}
	return result
}

func TestU58_FailedMachinesAreKept(t *testing.T) {
	failed := func(name string, age time.Duration, changes ...func(*scale.Member)) scale.Member {
		m := member(name, "Failed", age)
		m.Replace = true
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	kept := func(m *scale.Member) { m.Kept, m.Preserved, m.Replace = true, true, false }
	dismissed := func(m *scale.Member) { m.Dismissed = true }
	old, young := failed("old", time.Hour), failed("young", time.Minute)
	for _, row := range []struct {
		name    string
		most    int
		members []scale.Member
		keep    []string
		remove  []string
	}{
		{"U58: 1 of 1", 1, []scale.Member{old}, []string{"old"}, nil},
		{"U58: none may be kept", 0, []scale.Member{old}, nil, []string{"old"}},
		{"U58: as many as may be are kept already", 1, []scale.Member{failed("kept", time.Hour, kept), young}, nil, []string{"young"}},
		{"U58: 2 of 2", 2, []scale.Member{young, old}, []string{"old", "young"}, nil},
		{"U58: one more", 2, []scale.Member{failed("kept", time.Hour, kept), young}, []string{"young"}, nil},
		{"U58: somebody does not want it kept", 1, []scale.Member{failed("old", time.Hour, dismissed)}, nil, []string{"old"}},
		{"U58: fewer may be kept now: those that are stay", 0, []scale.Member{failed("kept", time.Hour, kept)}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(scale.Observed{Set: "s", Replicas: len(row.members), Members: row.members, Keep: row.most})
			assert.Equal(t, row.keep, names(d.Keep))
			assert.Equal(t, row.remove, names(d.Delete))
		})
	}
}

func TestDecide(t *testing.T) {
	old, young := member("old", "Running", time.Hour), member("young", "Running", time.Minute)
	pending, failed := member("pending", "Pending", time.Minute), member("failed", "Failed", time.Minute)
	going := member("going", "Terminating", time.Hour)
	going.Deleting = true
	granted := member("granted", "Failed", time.Minute)
	granted.Replace = true
	preserved := member("preserved", "Failed", time.Minute)
	preserved.Preserved = true
	cheap := member("cheap", "Running", time.Hour)
	cheap.Priority = 1
	for _, row := range []struct {
		name     string
		replicas int
		members  []scale.Member
		create   int
		remove   []string
	}{
		{"nothing to do", 2, []scale.Member{old, young}, 0, nil},
		{"a machine that is going does not count", 2, []scale.Member{old, going}, 1, nil},
		{"U40: create what is missing", 5, []scale.Member{old}, 4, nil},
		{"U45: the younger goes first", 1, []scale.Member{old, young}, 0, []string{"young"}},
		{"the one without a node goes first", 1, []scale.Member{old, pending}, 0, []string{"pending"}},
		{"U44: the failed one goes first", 1, []scale.Member{pending, failed}, 0, []string{"failed"}},
		{"one that failed and may be replaced is", 2, []scale.Member{old, granted}, 0, []string{"granted"}},
		{"one that failed and may not yet stays", 2, []scale.Member{old, failed}, 0, nil},
		{"U56: a preserved one goes only when it has to", 1, []scale.Member{preserved, old}, 0, []string{"old"}},
		{"U56: and then it goes", 0, []scale.Member{preserved}, 0, []string{"preserved"}},
		{"priority beats phase", 2, []scale.Member{cheap, pending, old}, 0, []string{"cheap"}},
		{"to zero", 0, []scale.Member{old, young, going}, 0, []string{"young", "old"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(scale.Observed{Set: "s", Replicas: row.replicas, Members: row.members, Seed: 7})
			assert.Len(t, d.Create, row.create)
			assert.Equal(t, row.remove, names(d.Delete))
			assert.NotEmpty(t, d.Why)
		})
	}
}

func TestDecideDeletesAllOfASetThatGoes(t *testing.T) {
	d := scale.Decide(scale.Observed{Set: "s", Deleting: true, Replicas: 5, Members: []scale.Member{member("a", "Running", 0), member("b", "", 0)}})
	assert.Empty(t, d.Create)
	assert.ElementsMatch(t, []string{"a", "b"}, names(d.Delete))
	assert.Equal(t, "delete all 2 machines: the set is being deleted", d.Why)
}

func TestDecideIsBounded(t *testing.T) {
	d := scale.Decide(scale.Observed{Set: "s", Replicas: 1000, Seed: 1})
	assert.Len(t, d.Create, scale.MaxBatch)
	assert.Equal(t, "create 50 machines: 1000 wanted, 0 there", d.Why)
}

// A decision is repeated until nothing is left to do: it must never overshoot, must end, and must be a function of its
// input.
func TestDecideConverges(t *testing.T) {
	phases := []string{"", "Pending", "Available", "Running", "Unknown", "CrashLoopBackOff", "InPlaceUpdating"}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		o := scale.Observed{Set: "s", Replicas: random.IntN(120), Taken: []string{"s-bbbbb"}, Seed: seed}
		for i := range random.IntN(150) {
			m := member(fmt.Sprintf("m-%03d", i), phases[random.IntN(len(phases))], time.Duration(i)*time.Second)
			m.Deleting = random.IntN(5) == 0
			o.Members = append(o.Members, m)
		}
		for round := 0; ; round++ {
			require.Less(t, round, 10, "does not end")
			d := scale.Decide(o)
			require.Equal(t, d, scale.Decide(o), "same input, another answer")
			require.False(t, len(d.Create) > 0 && len(d.Delete) > 0, "creates and deletes at once")
			if len(d.Create)+len(d.Delete) == 0 {
				break
			}
			for _, name := range d.Create {
				require.NotContains(t, o.Taken, name)
				o.Members = append(o.Members, member(name, "", 0))
			}
			for _, target := range d.Delete {
				for i := range o.Members {
					if o.Members[i].Name == target.Name {
						require.False(t, o.Members[i].Deleting, "deleted twice")
						o.Members[i].Deleting = true
					}
				}
			}
			o.Seed++
			seen := map[string]bool{}
			live := 0
			for _, m := range o.Members {
				require.False(t, seen[m.Name], "two machines of one name")
				seen[m.Name] = true
				if !m.Deleting {
					live++
				}
			}
			if len(d.Create) > 0 {
				require.LessOrEqual(t, live, o.Replicas, "more than wanted")
			}
		}
		live := 0
		for _, m := range o.Members {
			if !m.Deleting {
				live++
			}
		}
		require.Equal(t, o.Replicas, live)
	}
}
