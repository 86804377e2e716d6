package drain

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/starter/kubecli"
)

// runPreserve runs the command preserve, and returns the output and the created events.
func (w *fakeBackend) runPreserve(
	ctx context.Context,
	eventsFail error,
	args ...string,
) (string, []corev1.Event, error) {
	core := kubefake.NewClientset()
	if eventsFail != nil {
		core.PrependReactor(
			"create",
			"events",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, eventsFail },
		)
	}
	d := w.Environment()
	d.NewClients = func(kubecli.ClusterAccess) (kubecli.Clients, error) {
		return kubecli.Clients{MachineClient: w.MachineClient, Core: core.CoreV1()}, nil
	}
	var out bytes.Buffer
	c := PreserveCommand(d)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(ctx)
	events, listErr := core.CoreV1().Events("").List(ctx, metav1.ListOptions{})
	if listErr != nil {
		panic(listErr)
	}
	return out.String(), events.Items, err
}

func withPreservationEnd(end time.Time) machineEdit {
	return func(m *v1alpha1.Machine) {
		m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(end))
	}
}

func TestPreserveWritesAnnotationAndEvent(t *testing.T) {
	t.Setenv("USER", "ann")
	running := withoutDeletion(v1alpha1.MachineRunning)
	for _, c := range []struct {
		name    string
		machine *v1alpha1.Machine
		args    string
		value   string
		event   string
		says    []string
	}{
		{
			"now", newDeletedMachine(running), "shop/m-1 --reason looking", "now",
			`ann requested preserve: looking; wrote node.machine.sapcloud.io/preserve: "now"`,
			[]string{`machine shop/m-1: wrote node.machine.sapcloud.io/preserve: "now"`, "Next: the machine is preserved for 96h", "To take it back: millwright preserve shop/m-1 --stop\n"},
		},
		{
			"not only when it fails", newDeletedMachine(running, withAnnotation(v1alpha1.AnnotationPreserve, "when-failed")), "m-1 -n shop --as-user bob", "now",
			`bob requested preserve; wrote node.machine.sapcloud.io/preserve: "now"; before: "when-failed"`, nil,
		},
		{
			"what its set preserved", newDeletedMachine(withoutDeletion(v1alpha1.MachineFailed), withAnnotation(v1alpha1.AnnotationPreserve, "auto-preserved"), withPreservationEnd(now.Add(time.Hour))), "shop/m-1", "now",
			`ann requested preserve; wrote node.machine.sapcloud.io/preserve: "now"; before: "auto-preserved"`,
			[]string{"Next: the machine stays preserved until 15:06:07 UTC (in 1h), which does not move."},
		},
		{
			"when it fails", newDeletedMachine(running), "shop/m-1 --when-failed", "when-failed",
			`ann requested preserve when it fails; wrote node.machine.sapcloud.io/preserve: "when-failed"`,
			[]string{"Next: when the machine fails, it is preserved for 96h from then on, and not replaced.\n", "To take it back: millwright preserve shop/m-1 --stop\n"},
		},
		{
			"when it fails again, and no longer now", newDeletedMachine(running, withAnnotation(v1alpha1.AnnotationPreserve, "now"), withPreservationEnd(now.Add(time.Hour))), "shop/m-1 --when-failed", "when-failed",
			`ann requested preserve when it fails; wrote node.machine.sapcloud.io/preserve: "when-failed"; before: "now"`,
			[]string{"Next: the present preservation ends, because the machine has not failed; when the machine fails,"},
		},
		{
			"when it fails, and it has failed", newDeletedMachine(withoutDeletion(v1alpha1.MachineFailed)), "shop/m-1 --when-failed", "when-failed",
			`ann requested preserve when it fails; wrote node.machine.sapcloud.io/preserve: "when-failed"`,
			[]string{"Next: the machine is preserved for 96h: neither"},
		},
		{
			"no longer", newDeletedMachine(running, withAnnotation(v1alpha1.AnnotationPreserve, "now"), withPreservationEnd(now.Add(time.Hour))), "shop/m-1 --stop --reason done", "false",
			`ann requested unpreserve: done; wrote node.machine.sapcloud.io/preserve: "false"; before: "now"`,
			[]string{"Next: the machine is kept no longer", "To take it back: millwright preserve shop/m-1\n"},
		},
		{
			"never", newDeletedMachine(running), "shop/m-1 --stop", "false", `ann requested unpreserve; wrote node.machine.sapcloud.io/preserve: "false"`,
			[]string{"Next: nothing, as the machine is not preserved; when it fails, its set does not preserve it either."},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeBackend(c.machine)
			out, events, err := w.runPreserve(t.Context(), nil, strings.Fields(c.args)...)
			require.NoError(t, err)
			assert.Equal(t, annotationPatches(v1alpha1.AnnotationPreserve, c.value), w.Patches())
			require.Len(t, events, 1)
			assert.Equal(t, c.event, events[0].Message)
			assert.Equal(t, []string{"Normal", "RequestApplied", "Machine", "m-1", "u-1"}, []string{
				events[0].Type,
				events[0].Reason,
				events[0].InvolvedObject.Kind,
				events[0].InvolvedObject.Name,
				string(events[0].InvolvedObject.UID),
			})
			for _, says := range c.says {
				assert.Contains(t, out, says)
			}
			assert.NotContains(t, out, "millwright drain watch")
		})
	}
}

func TestPreserveTwiceWritesOnce(t *testing.T) {
	w := newFakeBackend(
		newDeletedMachine(
			withoutDeletion(v1alpha1.MachineRunning),
			withAnnotation(v1alpha1.AnnotationPreserve, "now"),
			withPreservationEnd(now.Add(time.Hour)),
		),
	)
	out, events, err := w.runPreserve(t.Context(), nil, "shop/m-1")
	require.NoError(t, err)
	assert.Empty(t, w.Patches())
	assert.Empty(t, events)
	assert.Contains(
		t,
		out,
		"machine shop/m-1: node.machine.sapcloud.io/preserve is already set: \"now\"\nNext: the machine stays preserved until",
	)
}

func TestPreserveRefusesUselessRequests(t *testing.T) {
	for want, m := range map[string]*v1alpha1.Machine{
		"machine shop/m-1 is being deleted: preserve would change nothing": newDeletedMachine(),
		`node n-1 says "false" for machine shop/m-1`:                       newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning), withAnnotation(v1alpha1.AnnotationLastAppliedPreserve, "false")),
	} {
		w := newFakeBackend(m)
		_, events, err := w.runPreserve(t.Context(), nil, "shop/m-1")
		require.ErrorContains(t, err, want)
		assert.Empty(t, w.Patches())
		assert.Empty(t, events)
	}
}

func TestPreserveTakesOneOfStopAndWhenFailed(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)))
	_, _, err := w.runPreserve(t.Context(), nil, "shop/m-1", "--stop", "--when-failed")
	require.ErrorContains(t, err, "[stop when-failed]")
	assert.Empty(t, w.Patches())
}

func TestPreserveReportsAFailedEvent(t *testing.T) {
	w := newFakeBackend(newDeletedMachine(withoutDeletion(v1alpha1.MachineRunning)))
	out, _, err := w.runPreserve(t.Context(), errors.New("forbidden"), "shop/m-1")
	require.EqualError(t, err, "the machine was changed, but the event with actor and reason was not created: forbidden")
	assert.Len(t, w.Patches(), 1)
	assert.Contains(t, out, "Next: the machine is preserved")
}

func TestPreserveCommandHasAllFlags(t *testing.T) {
	c, _, err := PreserveCommand(kubecli.NewEnvironment()).Find(nil)
	require.NoError(t, err)
	for _, flag := range []string{"kubeconfig", "namespace", "reason", "as-user", "stop", "when-failed"} {
		assert.NotNil(t, c.Flag(flag), flag)
	}
}
