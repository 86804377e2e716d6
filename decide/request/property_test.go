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
		if kind == request.KindMachine {
			forAllMachineOrders(c, func(o request.CommandOrder) {
				forAllMachines(func(f request.MachineFacts) { test(o, f) })
			})
			continue
		}
		for _, o := range []request.CommandOrder{
			newOrder(c), newOrder(c, withoutActorAndReason), newOrder(c, asRollbackOrder), newOrder(c, asRollbackOrder, withRevision(3)), newOrder(c, asPinOrder), newOrder(c, withRevision(0)), newOrder(c, withRevision(5)), newOrder(c, withRevision(7)),
			newOrder(c, withRevision(-1)), newOrder(c, withRevision(99)), newOrder(c, withApprovedSteps(1)), newOrder(c, withApprovedSteps(2)), newOrder(c, withApprovedSteps(3)), newOrder(c, withApprovedSteps(9)),
		} {
			forAllDeployments(func(f request.DeploymentFacts) { test(o, f) })
		}
	}
}

func forAllMachineOrders(c request.Command, test func(request.CommandOrder)) {
	const three = "2026-11-21T15:00:00Z"
	for _, o := range []request.CommandOrder{
		newOrder(c), newOrder(c, withoutActorAndReason), newOrder(c, asOrderInAdvance), newOrder(c, withRequestTime), newOrder(c, withExtendFor("30m")), newOrder(c, withExtendFor("30m"), withRequestTime),
		newOrder(c, withExtendUntil(three)), newOrder(c, withExtendUntil(three), withRequestTime, asOrderInAdvance), newOrder(c, withExtendFor("-1s")),
	} {
		test(o)
	}
}

// forAllMachines calls test for a machine in each stage of its deletion, and for a machine that is not being deleted.
func forAllMachines(test func(request.MachineFacts)) {
	stages := []deletion.Stage{
		"",
		deletion.StagePreDrainHooks,
		deletion.StageDrain,
		deletion.StageDetachVolumes,
		deletion.StageDeleteInstance,
		deletion.StageDeleteNode,
	}
	for _, stage := range stages {
		for _, present := range []time.Time{{}, nowPlus(-time.Hour), nowPlus(time.Hour)} {
			for _, said := range []string{"", "bob: x", "2026-11-21T15:30:00Z bob", "now"} {
				f := deletingMachine(withDeadline(present))
				f.Stage, f.DrainEnded = stage, slices.Index(stages, stage) > 2
				f.Deleting, f.PreservedUntil = stage != "", present
				f.NodeDraining = !f.Deleting && said != "bob: x"
				if said != "" {
					f.AnnotationValue = &said
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
		withHoldReason("bob: wait"),
		withRollback(5),
		withoutCurrentSet,
		withoutEarlierRevisions,
		withoutPausePoint,
		withApproval(2),
		withOnDeleteStrategy,
		withPinnedRevision,
		func(f *request.DeploymentFacts) { f.Rolling = false },
		func(f *request.DeploymentFacts) { f.StepCount, f.WaitingStep = 0, 0 },
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
	for _, kind := range []request.Kind{request.KindMachine, request.KindMachineDeployment} {
		given, same, refused := map[request.Command]int{}, map[request.Command]int{}, map[request.Command]int{}
		forAllRequests(kind, func(o request.CommandOrder, f request.Facts) {
			d := request.Decide(o, f)
			require.Equal(t, d, request.Decide(o, f), "the same facts, the same answer")
			switch {
			case d.RefusalReason != "":
				refused[o.Command]++
				require.Equal(t, request.Decision{RefusalReason: d.RefusalReason}, d)
			case d.Repeated:
				same[o.Command]++
				require.Equal(t, request.Decision{Repeated: true, Message: d.Message}, d)
				require.NotEmpty(t, d.Message)
			default:
				given[o.Command]++
				require.NotEmpty(t, d.Message)
				require.True(t, writesAnything(d))
				require.Equal(t, kind == request.KindMachineDeployment, d.Record != "")
				require.Contains(
					t,
					d.Message,
					map[request.Kind]string{request.KindMachine: "key", request.KindMachineDeployment: "shop/d"}[kind],
				)
			}
			if why := request.CheckOrder(kind, "u-1", o); why != "" {
				require.Equal(t, why, d.RefusalReason)
			}
			require.False(t, strings.HasSuffix(d.RefusalReason+d.Message, "."), d.RefusalReason+d.Message)
		})
		assert.Len(t, given, len(request.CommandSpecs(kind)), "each command is of use")
		assert.Len(t, refused, len(request.CommandSpecs(kind))+2, "and can be refused")
		assert.NotEmpty(t, same)
	}
}

func TestNoOrderWritesOnAnotherObject(t *testing.T) {
	for _, kind := range []request.Kind{request.KindMachine, request.KindMachineDeployment} {
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
			require.Equal(t, request.Decision{RefusalReason: d.RefusalReason}, d, "%+v", o)
			require.NotEmpty(t, d.RefusalReason)
		})
		assert.Positive(t, meant)
	}
}

// If an order for a machine is executed again, it does not change the annotation, whatever the first execution changed.
func TestARepeatedOrderForAMachineWritesOnce(t *testing.T) {
	tried := map[request.Command]int{}
	forAllRequests(request.KindMachine, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.MachineFacts)
		o.RequestedAt = now
		first := request.Decide(o, f)
		if first.RefusalReason != "" {
			return
		}
		if f.AnnotationValue = first.AnnotationValue; first.AnnotationValue != nil && *first.AnnotationValue == "" {
			f.AnnotationValue = nil
		} else if first.Repeated {
			return
		}
		if o.Command == request.Extend {
			f.ExtendedUntil, _ = time.Parse(time.RFC3339, (*first.AnnotationValue)[:len("2026-11-21T15:30:00Z")])
		}
		f.Stage, f.DrainEnded, f.RemovalMeans = deletion.StageDeleteNode, true, drain.MeansKill
		if o.Command == request.Preserve || o.Command == request.Unpreserve {
			f.Deleting = true
		}
		second := request.Decide(o, f)
		require.True(t, second.Repeated, "%+v %+v", o, second)
		require.False(t, writesAnything(second))
		tried[o.Command]++
	})
	assert.Len(t, tried, len(request.CommandSpecs(request.KindMachine)))
}

// If an order for a deployment is executed again, it writes nothing, even before the effect of the first execution is
// complete.
func TestARepeatedOrderForADeploymentWritesOnce(t *testing.T) {
	tried := map[request.Command]int{}
	forAllRequests(request.KindMachineDeployment, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.DeploymentFacts)
		o.RequestedAt = now
		first := request.Decide(o, f)
		if first.RefusalReason != "" || first.Repeated {
			return
		}
		for _, done := range []bool{false, true} {
			after := deploymentAfterDecision(f, o, first, done)
			after.Now = now.Add(time.Minute)
			second := request.Decide(o, after)
			require.Empty(t, second.RefusalReason, "%+v %+v", o, after)
			require.True(t, second.Repeated)
			require.False(t, writesAnything(second))
			after.Deleting = true
			require.True(t, request.Decide(o, after).Repeated, "and not when somebody deletes it meanwhile")
		}
		tried[o.Command]++
	})
	assert.Len(t, tried, len(request.CommandSpecs(request.KindMachineDeployment)))
}

// A repeated undo does not undo itself. Orders with different arguments have different records.
func TestDifferentOrdersHaveDifferentRecords(t *testing.T) {
	first := request.Decide(newOrder(request.Undo, withRequestTime), idleDeployment())
	done := deploymentAfterDecision(idleDeployment(), newOrder(request.Undo), first, true)
	assert.True(t, request.Decide(newOrder(request.Undo, withRequestTime), done).Repeated)
	for name, o := range map[string]request.CommandOrder{
		"later":     newOrder(request.Undo, func(o *request.CommandOrder) { o.RequestedAt = now.Add(time.Nanosecond) }),
		"by bob":    newOrder(request.Undo, withRequestTime, func(o *request.CommandOrder) { o.Actor = "bob" }),
		"elsewhere": newOrder(request.Undo, withRequestTime, withRevision(5)),
		"why not":   newOrder(request.Undo, withRequestTime, withReason("why not")),
		"not twice": newOrder(request.Undo),
	} {
		d := request.Decide(o, done)
		assert.False(t, d.Repeated, name)
		assert.NotNil(t, d.RollbackTo, name)
	}
}

// An extension is later than now and later than every earlier deadline.
func TestExtensionsOnlyGiveMoreTime(t *testing.T) {
	tried := 0
	forAllRequests(request.KindMachine, func(o request.CommandOrder, facts request.Facts) {
		f := facts.(request.MachineFacts)
		f.ExtendedUntil = nowPlus(45 * time.Minute)
		d := request.Decide(o, f)
		if o.Command != request.Extend || d.RefusalReason != "" || d.Repeated {
			return
		}
		until, err := time.Parse(time.RFC3339, (*d.AnnotationValue)[:len("2026-11-21T15:30:00Z")])
		require.NoError(t, err)
		require.True(
			t,
			until.After(now) && until.After(f.Deadlines.NextDeadline()) && until.After(f.ExtendedUntil),
			"%s %+v",
			until,
			f,
		)
		tried++
	})
	assert.Positive(t, tried)
}

// A command for a deletion or a drain is refused if it comes too late. A command is also refused if the deletion or the
// drain has not begun, unless ValidInAdvance is set.
func TestDeletionCommandsNeedADeletion(t *testing.T) {
	forAllRequests(request.KindMachine, func(o request.CommandOrder, facts request.Facts) {
		f, d := facts.(request.MachineFacts), request.Decide(o, facts)
		ofDeletion := !slices.Contains([]request.Command{request.Resume, request.Preserve, request.Unpreserve}, o.Command)
		if ofDeletion && d.RefusalReason == "" && !d.Repeated {
			require.True(t, f.Deleting || f.NodeDraining || o.ValidInAdvance, "%+v", o)
			require.True(t, f.Deleting || o.Command != request.AbandonInstance, "%+v", o)
			ofPods := slices.Contains([]request.Command{request.Extend, request.Force, request.Skip}, o.Command)
			require.False(t, f.DrainEnded && ofPods, "%+v", o)
		}
	})
}

// A request that has no effect on a deployment writes nothing.
func TestIneffectiveRequestsWriteNothingOnADeployment(t *testing.T) {
	forAllRequests(request.KindMachineDeployment, func(o request.CommandOrder, facts request.Facts) {
		f, d := facts.(request.DeploymentFacts), request.Decide(o, facts)
		if !writesAnything(d) {
			return
		}
		require.False(t, f.Deleting)
		if d.RollbackTo != nil {
			require.False(t, f.Paused || f.InvalidReason != "", "it would not be carried out")
			require.Contains(t, f.EarlierRevisions, *d.RollbackTo)
			require.NotEqual(t, f.Revision, *d.RollbackTo)
		}
		if d.RestartedAt != nil {
			require.False(t, f.Paused || f.HoldReason != "" || f.InvalidReason != "" || f.RollbackTo != nil)
			at, err := time.Parse(time.RFC3339, *d.RestartedAt)
			require.NoError(t, err)
			require.Equal(t, now.Truncate(time.Second), at)
		}
		if o.Command == request.Approve || d.AnnotationValue != nil && o.Command == request.Cancel && d.RollbackTo == nil {
			require.True(t, f.Rolling && f.Revision == 7)
		}
		if o.Command == request.Approve {
			require.True(t, strings.HasPrefix(*d.AnnotationValue, "7/"))
			require.Positive(t, f.StepCount)
		}
	})
}
