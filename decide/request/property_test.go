package request_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/deletion"
	"millwright/decide/drain"
	"millwright/decide/request"
)

// forAllRequests calls test with each command of a kind, with many arguments and many objects.
func forAllRequests(kind request.Kind, test func(request.CommandOrder, request.Facts)) {
	commands := []request.Command{"", "burn"}
	for _, s := range request.CommandSpecs(kind) {
		commands = append(commands, s.Command)
	}
	for _, c := range commands {
		if kind == request.Machine {
			forAllMachineOrders(c, func(o request.CommandOrder) {
				forAllMachines(func(f request.MachineFacts) { test(o, f) })
			})
			continue
		}
		for _, o := range []request.CommandOrder{
			newOrder(c), newOrder(c, withoutActor), newOrder(c, withBackArgument), newOrder(c, withBackArgument, withRevision(3)), newOrder(c, withPin), newOrder(c, withRevision(0)), newOrder(c, withRevision(5)), newOrder(c, withRevision(7)),
			newOrder(c, withRevision(-1)), newOrder(c, withRevision(99)), newOrder(c, withSteps(1)), newOrder(c, withSteps(2)), newOrder(c, withSteps(3)), newOrder(c, withSteps(9)),
		} {
			forAllDeployments(func(f request.DeploymentFacts) { test(o, f) })
		}
	}
}

func forAllMachineOrders(c request.Command, test func(request.CommandOrder)) {
	const three = "2026-11-21T15:00:00Z"
	for _, o := range []request.CommandOrder{
		newOrder(c), newOrder(c, withoutActor), newOrder(c, withInAdvanceArgument), newOrder(c, withRequestTime), newOrder(c, withForArgument("30m")), newOrder(c, withForArgument("30m"), withRequestTime),
		newOrder(c, withUntilArgument(three)), newOrder(c, withUntilArgument(three), withRequestTime, withInAdvanceArgument), newOrder(c, withForArgument("-1s")),
	} {
		test(o)
	}
}

// forAllMachines calls test for a machine in each stage of its deletion, and for a machine that is not being deleted.
func forAllMachines(test func(request.MachineFacts)) {
	stages := []deletion.Stage{
		"",
		deletion.PreDrainHooks,
		deletion.Drain,
		deletion.Detach,
		deletion.Instance,
		deletion.Node,
	}
	for _, stage := range stages {
		for _, present := range []time.Time{{}, nowPlus(-time.Hour), nowPlus(time.Hour)} {
			for _, said := range []string{"", "bob: x", "2026-11-21T15:30:00Z bob", "now"} {
				f := deletedMachine(withDeadline(present))
				f.Stage, f.DrainOver = stage, slices.Index(stages, stage) > 2
				f.Deleting, f.KeptTill = stage != "", present
				f.Emptying = !f.Deleting && said != "bob: x"
				if said != "" {
					f.Value = &said
				}
				test(f)
			}
		}
	}
}

// forAllDeployments calls test with facts of deployments. Each deployment differs from rollingDeployment in at most
// three facts that commands check.
func forAllDeployments(test func(request.DeploymentFacts)) {
	switches := []func(*request.DeploymentFacts){
		withDeletion,
		withInvalidSpec,
		asPausedDeployment,
		withRevisionHold("bob: wait"),
		withRollback(5),
		withoutCurrentSet,
		withoutEarlierRevisions,
		withoutPausePoint,
		withApproval(2),
		withOnDeleteStrategy,
		withPinnedRevision,
		func(f *request.DeploymentFacts) { f.Rolling = false },
		func(f *request.DeploymentFacts) { f.Steps, f.WaitsAt = 0, 0 },
	}
	for set := range uint(1) << len(switches) {
		if bits.OnesCount(set) > 3 {
			continue
		}
		f := rollingDeployment()
		for i, change := range switches {
			if set>>i&1 == 1 {
				change(&f)
			}
		}
		test(f)
	}
}

func TestDecisionEitherRefusesRepeatsOrWrites(t *testing.T) {
	for _, kind := range []request.Kind{request.Machine, request.MachineDeployment} {
		given, same, refused := map[request.Command]int{}, map[request.Command]int{}, map[request.Command]int{}
		forAllRequests(kind, func(o request.CommandOrder, f request.Facts) {
			d := request.Decide(o, f)
			require.Equal(t, d, request.Decide(o, f), "the same facts, the same answer")
			switch {
			case d.Refused != "":
				refused[o.Command]++
				require.Equal(t, request.Decision{Refused: d.Refused}, d)
			case d.Same:
				same[o.Command]++
				require.Equal(t, request.Decision{Same: true, Says: d.Says}, d)
				require.NotEmpty(t, d.Says)
			default:
				given[o.Command]++
				require.NotEmpty(t, d.Says)
				require.True(t, writesAnything(d))
				require.Equal(t, kind == request.MachineDeployment, d.Record != "")
				require.Contains(
					t,
					d.Says,
					map[request.Kind]string{request.Machine: "key", request.MachineDeployment: "shop/d"}[kind],
				)
			}
			if why := request.CheckOrder(kind, "u-1", o); why != "" {
				require.Equal(t, why, d.Refused)
			}
			require.False(t, strings.HasSuffix(d.Refused+d.Says, "."), d.Refused+d.Says)
		})
		assert.Len(t, given, len(request.CommandSpecs(kind)), "each command is of use")
		assert.Len(t, refused, len(request.CommandSpecs(kind))+2, "and can be refused")
		assert.NotEmpty(t, same)
	}
}

func TestNoOrderWritesOnAnotherObject(t *testing.T) {
	for _, kind := range []request.Kind{request.Machine, request.MachineDeployment} {
		meant := 0
		forAllRequests(kind, func(o request.CommandOrder, f request.Facts) {
			free := request.Decide(o, f)
			o.UID = "u-1"
			require.Equal(t, free, request.Decide(o, f), "whichever has the name is this one")
			if writesAnything(free) {
				meant++
			}
			o.UID = "u-2"
			d := request.Decide(o, f)
			require.NotEmpty(t, request.CheckOrder(kind, "u-1", o))
			require.Equal(t, request.Decision{Refused: d.Refused}, d, "%+v", o)
			require.NotEmpty(t, d.Refused)
		})
		assert.Positive(t, meant)
	}
}

// If an order for a machine is executed again, it does not change the annotation, whatever the first execution changed.
func TestARepeatedOrderForAMachineWritesOnce(t *testing.T) {
	tried := map[request.Command]int{}
	forAllRequests(request.Machine, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.MachineFacts)
		o.Asked = now
		first := request.Decide(o, f)
		if first.Refused != "" {
			return
		}
		if f.Value = first.Annotation; first.Annotation != nil && *first.Annotation == "" {
			f.Value = nil
		} else if first.Same {
			return
		}
		if o.Command == request.Extend {
			f.Extended, _ = time.Parse(time.RFC3339, (*first.Annotation)[:len("2026-11-21T15:30:00Z")])
		}
		f.Stage, f.DrainOver, f.Means = deletion.Node, true, drain.Kill
		if o.Command == request.Preserve || o.Command == request.Unpreserve {
			f.Deleting = true
		}
		second := request.Decide(o, f)
		require.True(t, second.Same, "%+v %+v", o, second)
		require.False(t, writesAnything(second))
		tried[o.Command]++
	})
	assert.Len(t, tried, len(request.CommandSpecs(request.Machine)))
}

// If an order for a deployment is executed again, it writes nothing, even before the effect of the first execution is
// complete.
func TestARepeatedOrderForADeploymentWritesOnce(t *testing.T) {
	tried := map[request.Command]int{}
	forAllRequests(request.MachineDeployment, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.DeploymentFacts)
		o.Asked = now
		first := request.Decide(o, f)
		if first.Refused != "" || first.Same {
			return
		}
		for _, done := range []bool{false, true} {
			after := deploymentAfterDecision(f, o, first, done)
			after.Now = now.Add(time.Minute)
			second := request.Decide(o, after)
			require.Empty(t, second.Refused, "%+v %+v", o, after)
			require.True(t, second.Same)
			require.False(t, writesAnything(second))
			after.Deleting = true
			require.True(t, request.Decide(o, after).Same, "and not when somebody deletes it meanwhile")
		}
		tried[o.Command]++
	})
	assert.Len(t, tried, len(request.CommandSpecs(request.MachineDeployment)))
}

// A repeated undo does not undo itself. Orders with different arguments have different records.
func TestDifferentOrdersHaveDifferentRecords(t *testing.T) {
	first := request.Decide(newOrder(request.Undo, withRequestTime), idleDeployment())
	done := deploymentAfterDecision(idleDeployment(), newOrder(request.Undo), first, true)
	assert.True(t, request.Decide(newOrder(request.Undo, withRequestTime), done).Same)
	for name, o := range map[string]request.CommandOrder{
		"later":     newOrder(request.Undo, func(o *request.CommandOrder) { o.Asked = now.Add(time.Nanosecond) }),
		"by bob":    newOrder(request.Undo, withRequestTime, func(o *request.CommandOrder) { o.Actor = "bob" }),
		"elsewhere": newOrder(request.Undo, withRequestTime, withRevision(5)),
		"why not":   newOrder(request.Undo, withRequestTime, withReason("why not")),
		"not twice": newOrder(request.Undo),
	} {
		d := request.Decide(o, done)
		assert.False(t, d.Same, name)
		assert.NotNil(t, d.RollbackTo, name)
	}
}

// An extension is later than now and later than every earlier deadline.
func TestExtensionsOnlyGiveMoreTime(t *testing.T) {
	tried := 0
	forAllRequests(request.Machine, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.MachineFacts)
		f.Extended = nowPlus(45 * time.Minute)
		d := request.Decide(o, f)
		if o.Command != request.Extend || d.Refused != "" || d.Same {
			return
		}
		until, err := time.Parse(time.RFC3339, (*d.Annotation)[:len("2026-11-21T15:30:00Z")])
		require.NoError(t, err)
		require.True(
			t,
			until.After(now) && until.After(f.Deadlines.NextDeadline()) && until.After(f.Extended),
			"%s %+v",
			until,
			f,
		)
		tried++
	})
	assert.Positive(t, tried)
}

// A command for a deletion or a drain is refused if it comes too late. A command is also refused if the deletion or the
// drain has not begun, unless InAdvance is set.
func TestDeletionCommandsNeedADeletion(t *testing.T) {
	forAllRequests(request.Machine, func(o request.CommandOrder, facts request.Facts) {
		f, d := facts.(request.MachineFacts), request.Decide(o, facts)
		ofDeletion := !slices.Contains([]request.Command{request.Resume, request.Preserve, request.Unpreserve}, o.Command)
		if ofDeletion && d.Refused == "" && !d.Same {
			require.True(t, f.Deleting || f.Emptying || o.InAdvance, "%+v", o)
			require.True(t, f.Deleting || o.Command != request.AbandonInstance, "%+v", o)
			ofPods := slices.Contains([]request.Command{request.Extend, request.Force, request.Skip}, o.Command)
			require.False(t, f.DrainOver && ofPods, "%+v", o)
		}
	})
}

// A request that has no effect on a deployment writes nothing.
func TestIneffectiveRequestsWriteNothingOnADeployment(t *testing.T) {
	forAllRequests(request.MachineDeployment, func(o request.CommandOrder, facts request.Facts) {
		f, d := facts.(request.DeploymentFacts), request.Decide(o, facts)
		if !writesAnything(d) {
			return
		}
		require.False(t, f.Deleting)
		if d.RollbackTo != nil {
			require.False(t, f.Paused || f.Invalid != "", "it would not be carried out")
			require.Contains(t, f.Revisions, *d.RollbackTo)
			require.NotEqual(t, f.Revision, *d.RollbackTo)
		}
		if d.RestartedAt != nil {
			require.False(t, f.Paused || f.Held != "" || f.Invalid != "" || f.RollbackTo != nil)
			at, err := time.Parse(time.RFC3339, *d.RestartedAt)
			require.NoError(t, err)
			require.Equal(t, now.Truncate(time.Second), at)
		}
		if o.Command == request.Approve || d.Annotation != nil && o.Command == request.Cancel && d.RollbackTo == nil {
			require.True(t, f.Rolling && f.Revision == 7)
		}
		if o.Command == request.Approve {
			require.True(t, strings.HasPrefix(*d.Annotation, "7/"))
			require.Positive(t, f.Steps)
		}
	})
}
