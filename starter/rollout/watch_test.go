package rollout

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

var errDeploymentNotFound = apierrors.NewNotFound(schema.GroupResource{Resource: "machinedeployments"}, "web")

// newBackendWithReadResults returns a backend whose reads return these pools or errors one after the other. Later reads
// return the last one again.
func newBackendWithReadResults(found ...any) *fakeBackend {
	w := newFakeBackend()
	at := &pool{}
	w.MachineClient.PrependReactor("get", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		next := found[0]
		if len(found) > 1 {
			found = found[1:]
		}
		if err, failed := next.(error); failed {
			return true, nil, err
		}
		at = next.(*pool)
		return true, at.deployment, nil
	})
	w.MachineClient.PrependReactor("list", "machinesets", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &v1alpha1.MachineSetList{}
		for _, s := range at.sets {
			list.Items = append(list.Items, *s)
		}
		return true, list, nil
	})
	w.MachineClient.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &v1alpha1.MachineList{}
		for _, m := range at.machines {
			list.Items = append(list.Items, *m)
		}
		return true, list, nil
	})
	w.MachineClient.PrependReactor("list", "machineclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &v1alpha1.MachineClassList{}
		for _, s := range at.sets {
			class := metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Spec.Template.Spec.Class.Name}
			list.Items = append(list.Items, v1alpha1.MachineClass{ObjectMeta: class})
		}
		return true, list, nil
	})
	return w
}

// runWatch runs the command watch with a backend whose reads return these pools and errors.
func runWatch(t *testing.T, args []string, found ...any) (lines []string, err error) {
	t.Helper()
	out, err := runCommandWithNodes(
		t.Context(),
		newBackendWithReadResults(found...),
		nil,
		append([]string{"watch", "shop/web", "--interval=1ns"}, args...)...)
	for line := range strings.Lines(out) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "14:06:07 UTC  "))
	}
	return lines, err
}

// rolledBackPool returns a deployment that has the template of set web-a again, after a rollback by a person or by
// Millwright.
func rolledBackPool() *pool {
	return webPool(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" }).
		addSet("web-a", 8, "small", 2).
		addRunningMachines("a-1", "a-2").addSet("web-b", 7, "large", 1).addRunningMachines("b-1")
}

// withPinToFormerSet pins the machines to the former set, after an automatic rollback or a request by an operator.
func withPinToFormerSet(by string) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.Status.Rollout = &v1alpha1.RolloutStatus{
			Revision: 7, Set: "web-b",
			Pin: &v1alpha1.RolloutPin{
				Set: "web-a", Revision: 6, Since: metav1.NewTime(beginTime),
				Reason: "1 machine of it failed, 0 allowed", RequestedBy: by,
			},
		}
	}
}

// After "undo --pin", a watch ends when all machines have the former revision again.
func TestWatchEndsAfterAnUndoWithPin(t *testing.T) {
	pin := withPinToFormerSet("ann: v7 is slow")
	returned := webPool(
		pin,
	).addSet("web-a", 6, "small", 3).
		addRunningMachines("a-1", "a-3", "a-4").
		addSet("web-b", 7, "large", 0)
	lines, err := runWatch(t, nil, waitingPool(pin), returned)
	require.NoError(t, err)
	assert.Equal(
		t,
		"shop/web: revision 7 is pinned by ann (v7 is slow): back on revision 6; watched for 0s: 1 machine replaced",
		lines[len(lines)-1],
	)
}

func TestWatchPrintsALineForEachChange(t *testing.T) {
	lines, err := runWatch(
		t,
		nil,
		poolWithoutNewSet(),
		poolWithoutNewSet(),
		errors.New("away"),
		errors.New("away"),
		waitingPool(),
		waitingPool(),
		completedPool(),
	)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"shop/web  [>         ] 0/3 up to date, 3 available  the new template is being rolled out; next: create a set of 1 machine for revision 7: the template has none",
		"get deployment shop/web: away",
		"shop/web  [======>   ] 2/3 up to date, 2 available  revision 7 waits: 1 new machine is not available yet: 2 are available, 3 are needed",
		"shop/web  [==========] 3/3 up to date, 3 available  revision 7 is complete",
		"shop/web: revision 7 is complete; watched for 0s: 3 machines replaced",
	}, lines)
}

func TestWatchFailsIfTheRolloutStops(t *testing.T) {
	held := withAnnotation(v1alpha1.AnnotationRolloutHold, "7 ann: the image is bad")
	for _, c := range []struct {
		name string
		then any
		want string
	}{
		{"paused", waitingPool(setPaused), "shop/web: it is paused: 2 of 3 machines up to date; watched for 0s: 0 machines replaced"},
		{"held", waitingPool(held), "shop/web: revision 7 is held by ann (the image is bad): 2 of 3 machines up to date; watched for 0s: 0 machines replaced"},
		{"late", waitingPool(withProgressDeadline(600)), "shop/web: revision 7 made no progress for 10m, and its progress deadline has passed; watched for 0s: 0 machines replaced"},
		{"rolled back", rolledBackPool(), "shop/web: revision 7 was rolled back: revision 8 has the template of set web-a again; watched for 0s: 1 machine replaced"},
		{"pinned to a former revision", waitingPool(withPinToFormerSet("")), "shop/web: revision 7 failed (1 machine of it failed, 0 allowed): back on revision 6; watched for 0s: 0 machines replaced"},
		{"invalid", waitingPool(removeClass), "shop/web: nothing can be done with it: the template names no machine class; watched for 0s: 0 machines replaced"},
		{"deleted", waitingPool(markDeleted), "shop/web: it is being deleted, and its rollout was not complete; watched for 0s: 0 machines replaced"},
		{"gone", errDeploymentNotFound, "deployment shop/web is gone, and its rollout was not complete"},
		{"another one", waitingPool(func(d *v1alpha1.MachineDeployment) { d.UID = "d-2" }), "deployment shop/web is gone, and its rollout was not complete"},
	} {
		lines, err := runWatch(t, nil, waitingPool(), c.then)
		require.EqualError(t, err, c.want, c.name)
		assert.NotContains(t, strings.Join(lines, "\n"), "is complete", c.name)
		if p, there := c.then.(*pool); there && p.deployment.UID == "d-1" && c.name != "invalid" && c.name != "deleted" {
			lines, err = runWatch(t, []string{"--keep-watching"}, waitingPool(), p, completedPool())
			require.NoError(t, err, c.name)
			assert.Equal(t, "shop/web: revision 7 is complete; watched for 0s: 2 machines replaced", lines[len(lines)-1], c.name)
			continue
		}
		_, err = runWatch(t, []string{"--keep-watching"}, waitingPool(), c.then)
		require.EqualError(t, err, c.want, c.name)
	}
}

func TestWatchContinuesAfterAStep(t *testing.T) {
	lines, err := runWatch(t, nil, waitingPool().addPolicy(policyWithSteps(approvalStep(1))), completedPool())
	require.NoError(t, err)
	assert.Contains(t, lines[0], "revision 7: step 1 of 1 done (1 of 3 machines), waits for approval")
}

func TestWatchFollowsANewerTemplate(t *testing.T) {
	newer := func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "huge" }
	between := webPool(newer).addSet("web-b", 7, "large", 3).addRunningMachines("b-1", "b-2", "b-3")
	begun := webPool(
		newer,
	).addSet("web-b", 7, "large", 2).
		addRunningMachines("b-1", "b-2").
		addSet("web-c", 8, "huge", 1).
		addRunningMachines("c-1")
	done := webPool(
		newer,
	).addSet("web-b", 7, "large", 0).
		addSet("web-c", 8, "huge", 3).
		addRunningMachines("c-1", "c-2", "c-3")
	lines, err := runWatch(t, nil, waitingPool(), between, begun, done)
	require.NoError(t, err)
	assert.Contains(t, lines, "shop/web: revision 8 takes the place of revision 7")
	assert.Equal(
		t,
		"shop/web: revision 8 is complete; watched for 0s: 5 machines replaced",
		lines[len(lines)-1],
		"a-1, a-2, and those of web-b",
	)
}

func TestWatchOfAnUndoRequestedBeforeTheWatch(t *testing.T) {
	whole := webPool(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" }).
		addSet("web-b", 7, "large", 0).addSet("web-a", 8, "small", 3).addRunningMachines("a-1", "a-2", "a-3")
	lines, err := runWatch(t, nil, waitingPool(withRollbackRequest(0)), rolledBackPool(), whole)
	require.NoError(t, err)
	assert.Contains(t, lines[0], "an undo is asked for; next: return to revision 6, set web-a")
	assert.Equal(
		t,
		"shop/web: revision 8 is complete; watched for 0s: 2 machines replaced",
		lines[len(lines)-1],
		"b-1 and b-2",
	)
}

func TestWatchCountsMachinesThatWereUpdatedInPlace(t *testing.T) {
	done := webPool(withInPlaceStrategy(v1alpha1.OrchestrationTypeAuto)).addSet("web-a", 6, "small", 0).
		addSet("web-b", 7, "large", 3).
		addRunningMachines("a-1", "a-2", "b-1")
	lines, err := runWatch(t, nil, inPlacePool(v1alpha1.OrchestrationTypeAuto), done)
	require.NoError(t, err)
	assert.Equal(
		t,
		"shop/web: revision 7 is complete; watched for 0s: 2 machines updated or replaced",
		lines[len(lines)-1],
	)
}

func TestWatchReportsDurationAndOverdueSteps(t *testing.T) {
	j := &watchState{}
	look := func(p *pool, after time.Duration) snapshot {
		s := p.newSnapshot()
		s.now = now.Add(after)
		j.recordSnapshot(&s)
		return s
	}
	assert.NotContains(t, look(poolWithoutNewSet(), 0).summaryLine(), "nobody")
	assert.NotContains(
		t,
		look(poolWithoutNewSet(), time.Minute).summaryLine(),
		"nobody",
		"that may be a worker that begins",
	)
	late := look(poolWithoutNewSet(), 61*time.Second).summaryLine()
	assert.Contains(
		t,
		late,
		"the template has none; that has been due since 14:06:07 UTC: check that bridge and workers run",
	)
	assert.Equal(t, late, look(poolWithoutNewSet(), 70*time.Second).summaryLine(), "it changes only with what is seen")
	assert.NotContains(
		t,
		look(waitingPool(), 80*time.Second).summaryLine(),
		"nobody",
		"it waits for machines, and not for workers",
	)
	assert.NotContains(t, look(waitingPool(), 10*time.Minute).summaryLine(), "nobody")
	last, err := j.finalLine(look(completedPool(), 272*time.Second))
	require.NoError(t, err)
	assert.Equal(t, "shop/web: revision 7 is complete; watched for 4m32s: 3 machines replaced", last)
}

func TestWatchFailsOnlyIfTheFirstReadFails(t *testing.T) {
	_, err := runWatch(t, nil, errDeploymentNotFound)
	require.ErrorContains(t, err, "there is no deployment shop/web")
	_, err = runWatch(t, nil, errors.New("forbidden"))
	require.EqualError(t, err, "get deployment shop/web: forbidden")
}

func TestWatchFailsAfterASignal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newBackendWithReadResults(waitingPool())
	w.MachineClient.PrependReactor("get", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel() // the watch ends during a read
		return true, nil, errors.New("interrupted")
	})
	_, err := runCommandWithNodes(ctx, w, nil, "watch", "shop/web")
	require.EqualError(t, err, "the rollout of shop/web is not known to be complete: context canceled")

	ctx, cancel = context.WithCancel(t.Context())
	out := &clitest.CancellingWriter{Cancel: cancel} // the watch ends between two reads
	l := deploymentReader{
		key:     webKey,
		clients: kubecli.Clients{MachineClient: waitingPool().newBackend().MachineClient},
		now:     w.Environment().Now,
	}
	require.ErrorIs(t, l.watchRollout(ctx, out, &watchState{}, time.Hour), context.Canceled)
	assert.Contains(t, out.String(), "revision 7 waits")
}

func TestWatchRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	w, j := &printers.WatchPrinter{Out: &out, IsTerminal: true}, &watchState{}
	s := waitingPool().newSnapshot()
	for range 2 {
		over, err := j.showSnapshot(w, s)
		require.NoError(t, err)
		assert.False(t, over)
	}
	assert.Equal(t, strings.Repeat(printers.ClearScreenSequence+s.statusText(s.advice()), 2), out.String())
	assert.NotContains(t, out.String(), "millwright rollout watch", "it is being watched")
}

func TestWatchDetectsAReplacedDeployment(t *testing.T) {
	other := waitingPool(func(d *v1alpha1.MachineDeployment) { d.UID = types.UID("d-2") }).newSnapshot()
	assert.False(t, (&watchState{}).isDeploymentGone(other, nil), "it was not seen before")
	assert.True(t, (&watchState{uid: "d-1"}).isDeploymentGone(other, nil))
	assert.False(t, (&watchState{uid: "d-1"}).isDeploymentGone(snapshot{}, errors.New("away")))
	assert.True(t, (&watchState{uid: "d-1"}).isDeploymentGone(snapshot{}, errDeploymentNotFound))
}
