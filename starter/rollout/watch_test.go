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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/clitest"
	"millwright/starter/kubecli"
)

var errNoDeployment = apierrors.NewNotFound(schema.GroupResource{Resource: "machinedeployments"}, "web")

// sees makes each read find the next of these, a pool or an error; the last one repeatedly.
func sees(found ...any) *world {
	w := newWorld()
	at := &pool{}
	w.Machines.PrependReactor("get", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
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
	w.Machines.PrependReactor("list", "machinesets", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &v1alpha1.MachineSetList{}
		for _, s := range at.sets {
			list.Items = append(list.Items, *s)
		}
		return true, list, nil
	})
	w.Machines.PrependReactor("list", "machines", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &v1alpha1.MachineList{}
		for _, m := range at.machines {
			list.Items = append(list.Items, *m)
		}
		return true, list, nil
	})
	return w
}

// follow watches these pools and errors.
func follow(t *testing.T, args []string, found ...any) (lines []string, err error) {
	t.Helper()
	out, err := rollIn(
		t.Context(),
		sees(found...),
		nil,
		append([]string{"watch", "shop/web", "--interval=1ns"}, args...)...)
	for line := range strings.Lines(out) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "14:06:07 UTC  "))
	}
	return lines, err
}

// returned has the template of web-a again, after a rollback by a person or Millwright.
func returned(edits ...poolEdit) *pool {
	small := func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" }
	return webPool(append([]poolEdit{small}, edits...)...).
		set("web-a", 8, "small", 2).running("a-1", "a-2").set("web-b", 7, "large", 1).running("b-1")
}

func TestWatchOfARolloutPrintsALineForEachChange(t *testing.T) {
	lines, err := follow(t, nil, before(), before(), errors.New("away"), errors.New("away"), midway(), midway(), rolled())
	require.NoError(t, err)
	assert.Equal(t, []string{
		"shop/web  [>         ] 0/3 up to date, 3 available  the new template is being rolled out; next: create a set of 1 machine for revision 7: the template has none",
		"get deployment shop/web: away",
		"shop/web  [======>   ] 2/3 up to date, 2 available  revision 7 waits: 1 new machine is not available yet: 2 are available, 3 are needed",
		"shop/web  [==========] 3/3 up to date, 3 available  revision 7 is complete",
		"shop/web: revision 7 is complete; watched for 0s: 3 machines replaced",
	}, lines)
}

func TestWatchEndsWhenTheRolloutDoesNotComeAbout(t *testing.T) {
	held := annotated(v1alpha1.AnnotationRolloutHold, "7 ann: the image is bad")
	for _, c := range []struct {
		name string
		then any
		want string
	}{
		{"paused", midway(paused), "shop/web: it is paused: 2 of 3 machines up to date; watched for 0s: 0 machines replaced"},
		{"held", midway(held), "shop/web: revision 7 is held by ann (the image is bad): 2 of 3 machines up to date; watched for 0s: 0 machines replaced"},
		{"late", midway(patient(600)), "shop/web: revision 7 made no progress for 10m, and its progress deadline has passed; watched for 0s: 0 machines replaced"},
		{"rolled back", returned(), "shop/web: revision 7 was rolled back: revision 8 has the template of set web-a again; watched for 0s: 1 machine replaced"},
		{"invalid", midway(classless), "shop/web: nothing can be done with it: the template names no machine class; watched for 0s: 0 machines replaced"},
		{"deleted", midway(deleted), "shop/web: it is being deleted, and its rollout was not complete; watched for 0s: 0 machines replaced"},
		{"gone", errNoDeployment, "deployment shop/web is gone, and its rollout was not complete"},
		{"another one", midway(func(d *v1alpha1.MachineDeployment) { d.UID = "d-2" }), "deployment shop/web is gone, and its rollout was not complete"},
	} {
		lines, err := follow(t, nil, midway(), c.then)
		require.EqualError(t, err, c.want, c.name)
		assert.NotContains(t, strings.Join(lines, "\n"), "is complete", c.name)
		if p, there := c.then.(*pool); there && p.deployment.UID == "d-1" && c.name != "invalid" && c.name != "deleted" {
			lines, err = follow(t, []string{"--keep-watching"}, midway(), p, rolled())
			require.NoError(t, err, c.name)
			assert.Equal(t, "shop/web: revision 7 is complete; watched for 0s: 2 machines replaced", lines[len(lines)-1], c.name)
			continue
		}
		_, err = follow(t, []string{"--keep-watching"}, midway(), c.then)
		require.EqualError(t, err, c.want, c.name)
	}
}

func TestWatchGoesOnPastAStage(t *testing.T) {
	lines, err := follow(t, nil, midway().under(steps(approved(1))), rolled())
	require.NoError(t, err)
	assert.Contains(t, lines[0], "revision 7 waits: step 1 of 1 has its 1 machine, and lasts until a person passes it")
}

func TestWatchFollowsANewerTemplate(t *testing.T) {
	newer := func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "huge" }
	between := webPool(newer).set("web-b", 7, "large", 3).running("b-1", "b-2", "b-3")
	begun := webPool(newer).set("web-b", 7, "large", 2).running("b-1", "b-2").set("web-c", 8, "huge", 1).running("c-1")
	done := webPool(newer).set("web-b", 7, "large", 0).set("web-c", 8, "huge", 3).running("c-1", "c-2", "c-3")
	lines, err := follow(t, nil, midway(), between, begun, done)
	require.NoError(t, err)
	assert.Contains(t, lines, "shop/web: revision 8 takes the place of revision 7")
	assert.Equal(
		t,
		"shop/web: revision 8 is complete; watched for 0s: 5 machines replaced",
		lines[len(lines)-1],
		"a-1, a-2, and those of web-b",
	)
}

func TestWatchOfAnUndoThatWasAskedForBefore(t *testing.T) {
	whole := webPool(func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = "small" }).
		set("web-b", 7, "large", 0).set("web-a", 8, "small", 3).running("a-1", "a-2", "a-3")
	lines, err := follow(t, nil, midway(undone(0)), returned(), whole)
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
	done := webPool(inPlace(v1alpha1.OrchestrationTypeAuto)).set("web-a", 6, "small", 0).
		set("web-b", 7, "large", 3).
		running("a-1", "a-2", "b-1")
	lines, err := follow(t, nil, updating(v1alpha1.OrchestrationTypeAuto), done)
	require.NoError(t, err)
	assert.Equal(
		t,
		"shop/web: revision 7 is complete; watched for 0s: 2 machines updated or replaced",
		lines[len(lines)-1],
	)
}

func TestWatchTellsHowLongItTookAndWhenNobodyWorks(t *testing.T) {
	j := &watchState{}
	look := func(p *pool, after time.Duration) snapshot {
		s := p.snapshot()
		s.now = now.Add(after)
		j.note(&s)
		return s
	}
	assert.NotContains(t, look(before(), 0).summary(), "nobody")
	assert.NotContains(t, look(before(), time.Minute).summary(), "nobody", "that may be a worker that begins")
	late := look(before(), 61*time.Second).summary()
	assert.Contains(
		t,
		late,
		"the template has none; that has been due since 14:06:07 UTC: check that bridge and workers run",
	)
	assert.Equal(t, late, look(before(), 70*time.Second).summary(), "it changes only with what is seen")
	assert.NotContains(t, look(midway(), 80*time.Second).summary(), "nobody", "it waits for machines, and not for workers")
	assert.NotContains(t, look(midway(), 10*time.Minute).summary(), "nobody")
	last, err := j.end(look(rolled(), 272*time.Second))
	require.NoError(t, err)
	assert.Equal(t, "shop/web: revision 7 is complete; watched for 4m32s: 3 machines replaced", last)
}

func TestWatchOfARolloutFailsAtTheFirstLookOnly(t *testing.T) {
	_, err := follow(t, nil, errNoDeployment)
	require.ErrorContains(t, err, "there is no deployment shop/web")
	_, err = follow(t, nil, errors.New("forbidden"))
	require.EqualError(t, err, "get deployment shop/web: forbidden")
}

func TestWatchOfARolloutEndsWellWithCtrlC(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := sees(midway())
	w.Machines.PrependReactor("get", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel() // during a read
		return true, nil, errors.New("interrupted")
	})
	_, err := rollIn(ctx, w, nil, "watch", "shop/web")
	require.NoError(t, err)

	ctx, cancel = context.WithCancel(t.Context())
	out := &clitest.Pressed{Cancel: cancel} // between two reads
	l := reader{key: webKey, clients: kubecli.Clients{Machines: midway().world().Machines}, now: w.Environment().Now}
	require.NoError(t, l.watch(ctx, out, &watchState{}, time.Hour))
	assert.Contains(t, out.String(), "revision 7 waits")
}

func TestWatchOfARolloutDrawsAnewOnATerminal(t *testing.T) {
	var out bytes.Buffer
	w, j := &kubecli.Watch{Out: &out, Live: true}, &watchState{}
	s := midway().snapshot()
	for range 2 {
		over, err := j.show(w, s)
		require.NoError(t, err)
		assert.False(t, over)
	}
	assert.Equal(t, strings.Repeat(kubecli.ClearScreen+s.text(s.advice()), 2), out.String())
	assert.NotContains(t, out.String(), "millwright rollout watch", "it is being watched")
}

func TestJourneyKnowsADeploymentThatIsLost(t *testing.T) {
	other := midway(func(d *v1alpha1.MachineDeployment) { d.UID = types.UID("d-2") }).snapshot()
	assert.False(t, (&watchState{}).lost(other, nil), "it was not seen before")
	assert.True(t, (&watchState{uid: "d-1"}).lost(other, nil))
	assert.False(t, (&watchState{uid: "d-1"}).lost(snapshot{}, errors.New("away")))
	assert.True(t, (&watchState{uid: "d-1"}).lost(snapshot{}, errNoDeployment))
}
