package rollout

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

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
)

// runCommand runs a rollout command.
func (w *fakeBackend) runCommand(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := Command(w.Environment())
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

type deploymentEdit func(*v1alpha1.MachineDeployment)

// newWebDeployment returns deployment shop/web with two replicas.
func newWebDeployment(changes ...deploymentEdit) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace:       "shop",
		Name:            "web",
		UID:             "d-1",
		ResourceVersion: "7",
		Annotations:     map[string]string{v1alpha1.AnnotationRevision: "2"},
	}}
	d.Spec.Replicas, d.Spec.Selector = 2, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Spec.Template.Labels = map[string]string{"app": "web"}
	d.Spec.Template.Spec.Class.Name = "new"
	for _, c := range changes {
		c(d)
	}
	return d
}

// newSetWithMachines returns a set of shop/web with all its machines.
func newSetWithMachines(name, revision, class string, size int32) []runtime.Object {
	s := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop",
		Name:      name,
		UID:       types.UID(name),
		Labels:    newWebDeployment().Spec.Template.Labels,
		Annotations: map[string]string{
			v1alpha1.AnnotationRevision: revision, v1alpha1.AnnotationDesiredReplicas: "2", v1alpha1.AnnotationMaxReplicas: "3",
		},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(newWebDeployment(), v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment")),
		},
	}}
	s.Spec.Selector, s.Spec.Template, s.Spec.Replicas = newWebDeployment().Spec.Selector, newWebDeployment().Spec.Template, size
	s.Spec.Template.Spec.Class.Name = class
	s.Status.Replicas, s.Status.ObservedReplicas = size, size
	objects := []runtime.Object{s}
	for i := range size {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      name + "-" + string('a'+i),
			Labels:    map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(s, v1alpha1.SchemeGroupVersion.WithKind("MachineSet")),
			},
		}}
		m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
		objects = append(objects, m)
	}
	return objects
}

// halfUpdatedDeploymentObjects returns shop/web with one machine of revision 1 and one machine of revision 2, and a set
// without an owner, which must be ignored.
func halfUpdatedDeploymentObjects(changes ...deploymentEdit) []runtime.Object {
	objects := append([]runtime.Object{newWebDeployment(changes...)}, newSetWithMachines("web-1", "1", "old", 1)...)
	stranger := newSetWithMachines("web-9", "9", "old", 1)
	stranger[0].(*v1alpha1.MachineSet).OwnerReferences = nil
	return append(append(objects, newSetWithMachines("web-2", "2", "new", 1)...), stranger...)
}

// updatedDeploymentObjects returns shop/web with both machines of revision 2.
func updatedDeploymentObjects(changes ...deploymentEdit) []runtime.Object {
	objects := append([]runtime.Object{newWebDeployment(changes...)}, newSetWithMachines("web-1", "1", "old", 0)...)
	return append(objects, newSetWithMachines("web-2", "2", "new", 2)...)
}

func pauseDeployment(d *v1alpha1.MachineDeployment) { d.Spec.Paused = true }
func withHold(words string) deploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationRolloutHold] = words
	}
}

// withTwoStepPolicy adds a policy with two steps that a person must approve.
func withTwoStepPolicy(objects []runtime.Object) []runtime.Object {
	return append(
		objects,
		&v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful"},
			Spec:       policyWithSteps(approvalStep(1), approvalStep(2)),
		},
	)
}

// expectedRequestPatch returns the only patch that a request writes on shop/web, with this summary, these annotations
// and this spec.
func expectedRequestPatch(summary, annotations, spec string) []string {
	return []string{`application/merge-patch+json {"metadata":{"annotations":{` + annotations +
		`"rollout.machine.sapcloud.io/last-request":"2026-11-21T14:06:07Z ` + summary + `"},"resourceVersion":"7","uid":"d-1"}` + spec + `}`}
}

// expectedUndoPatch returns the patch of an undo to revision 1. The argument by is the person who requested the undo.
func expectedUndoPatch(summary, by string) []string {
	return []string{`application/merge-patch+json {"metadata":{"annotations":{` +
		`"rollout.machine.sapcloud.io/last-request":"2026-11-21T14:06:07Z ` + summary + `",` +
		`"rollout.machine.sapcloud.io/undo-by":"` + by + `"},"resourceVersion":"7","uid":"d-1"},` +
		`"spec":{"rollbackTo":{"revision":1}}}`}
}

// withFieldManager makes a field manager the owner of the template.
func withFieldManager(manager string) deploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "millwright", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
			{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{}}}`)},
		}
	}
}

// expectedPausePatch returns the patch of pause or resume. The argument by is the JSON value of the annotation
// paused-by.
func expectedPausePatch(summary, by, paused string) []string {
	return []string{
		`application/merge-patch+json {"metadata":{"annotations":{"rollout.machine.sapcloud.io/last-request":"2026-11-21T14:06:07Z ` + summary +
			`","rollout.machine.sapcloud.io/paused-by":` + by + `},"resourceVersion":"7","uid":"d-1"},"spec":{"paused":` + paused + `}}`,
	}
}

func TestRolloutRequestsWriteTheDeployment(t *testing.T) {
	t.Setenv("USER", "ann")
	const follow = "\nTo follow it: millwright rollout watch shop/web\n"
	for _, c := range []struct {
		name    string
		objects []runtime.Object
		args    []string
		want    []string
		out     string
	}{
		{
			"start", updatedDeploymentObjects(),
			[]string{"start", "shop/web", "--reason", "new\n base"},
			expectedRequestPatch("ann requested start: new base", `"kubernetes.io/change-cause":"started by ann: new base",`,
				`,"spec":{"template":{"metadata":{"annotations":{"rollout.machine.sapcloud.io/restarted-at":"2026-11-21T14:06:07Z"}}}}`),
			"wrote 2026-11-21T14:06:07Z into the template of deployment shop/web: all its machines are replaced\n" +
				"Next: another revision of the template is rolled out with the strategy RollingUpdate.\n" +
				"To take it back: millwright rollout undo shop/web" + follow,
		},
		{
			"start in steps, by somebody else", withTwoStepPolicy(updatedDeploymentObjects()),
			[]string{"start", "web", "-n", "shop", "--as-user", "bob"},
			expectedRequestPatch("bob requested start", `"kubernetes.io/change-cause":"started by bob",`,
				`,"spec":{"template":{"metadata":{"annotations":{"rollout.machine.sapcloud.io/restarted-at":"2026-11-21T14:06:07Z"}}}}`),
			"wrote 2026-11-21T14:06:07Z into the template of deployment shop/web: all its machines are replaced\n" +
				"Next: another revision of the template is rolled out with the strategy RollingUpdate, in steps: 2.\n" +
				"To take it back: millwright rollout undo shop/web" + follow,
		},
		{
			"pause", halfUpdatedDeploymentObjects(),
			[]string{"pause", "shop/web"},
			expectedPausePatch("ann requested pause", `"ann"`, "true"),
			"deployment shop/web is paused\n" +
				"Next: no template is rolled out until somebody resumes it; a new number of replicas takes effect, and machines that fail are replaced.\n" +
				"To take it back: millwright rollout resume shop/web" + follow,
		},
		{
			"pause again", halfUpdatedDeploymentObjects(pauseDeployment),
			[]string{"pause", "shop/web"},
			nil,
			"deployment shop/web is paused already\n" +
				"Next: no template is rolled out until somebody resumes it; a new number of replicas takes effect, and machines that fail are replaced.\n" +
				"To take it back: millwright rollout resume shop/web" + follow,
		},
		{
			"resume a pause", halfUpdatedDeploymentObjects(pauseDeployment),
			[]string{"resume", "shop/web"},
			expectedPausePatch("ann requested resume", "null", "false"),
			"deployment shop/web is no longer paused\nNext: the rollout continues where it stopped.\nTo take it back: millwright rollout pause shop/web" + follow,
		},
		{
			"resume a pause of nothing", updatedDeploymentObjects(pauseDeployment),
			[]string{"resume", "shop/web"},
			expectedPausePatch("ann requested resume", "null", "false"),
			"deployment shop/web is no longer paused\nNext: the next change of the template is rolled out.\nTo take it back: millwright rollout pause shop/web" + follow,
		},
		{
			"resume what was to return", halfUpdatedDeploymentObjects(pauseDeployment, func(d *v1alpha1.MachineDeployment) { d.Spec.RollbackTo = &v1alpha1.RollbackConfig{} }),
			[]string{"resume", "shop/web"},
			expectedPausePatch("ann requested resume", "null", "false"),
			"deployment shop/web is no longer paused\nNext: the deployment returns to the revision that was requested meanwhile.\n" +
				"To take it back: millwright rollout pause shop/web" + follow,
		},
		{
			"resume a hold", halfUpdatedDeploymentObjects(withHold("2 bob: wait")),
			[]string{"resume", "shop/web"},
			expectedRequestPatch("ann requested resume", `"rollout.machine.sapcloud.io/hold":null,`, ""),
			"the rollout of revision 2 of deployment shop/web is no longer held (former hold: bob: wait)\nNext: the rollout continues where it stopped." + follow,
		},
		{
			"cancel", halfUpdatedDeploymentObjects(),
			[]string{"cancel", "shop/web", "--reason", "it burns"},
			expectedRequestPatch("ann requested cancel: it burns", `"rollout.machine.sapcloud.io/hold":"2 ann: it burns",`, ""),
			"the rollout of revision 2 of deployment shop/web is held where it is\n" +
				"Next: machines of all templates stay, machines that fail are replaced, and a new number of replicas takes effect, " +
				"until somebody resumes it or there is another revision.\nTo take it back: millwright rollout resume shop/web" + follow,
		},
		{
			"cancel and return", halfUpdatedDeploymentObjects(withHold("2 bob: wait")),
			[]string{"cancel", "shop/web", "--back", "--reason", "it burns"},
			expectedUndoPatch("ann requested cancel and return: it burns", "1 ann: it burns"),
			"deployment shop/web returns from revision 2 to revision 1\n" +
				"Next: the template of that revision returns, and is rolled out with the strategy RollingUpdate.\n" +
				"To take it back: millwright rollout undo shop/web --to-revision 2" + follow,
		},
		{
			"undo", updatedDeploymentObjects(),
			[]string{"undo", "shop/web"},
			expectedUndoPatch("ann requested undo", "1 ann"),
			"deployment shop/web returns from revision 2 to revision 1\n" +
				"Next: the template of that revision returns, and is rolled out with the strategy RollingUpdate.\n" +
				"To take it back: millwright rollout undo shop/web --to-revision 2" + follow,
		},
		{
			"undo of a template that Argo CD applies", updatedDeploymentObjects(withFieldManager("argocd-controller")),
			[]string{"undo", "shop/web"},
			expectedUndoPatch("ann requested undo", "1 ann"),
			"deployment shop/web returns from revision 2 to revision 1\n" +
				"Next: the template of that revision returns, and is rolled out with the strategy RollingUpdate; " +
				"Argo CD manages the template (field manager argocd-controller): it applies the template in Git again, " +
				"and the rollout begins again; change the template in Git, or use --pin.\n" +
				"To take it back: millwright rollout undo shop/web --to-revision 2" + follow,
		},
		{
			"undo by a pin", updatedDeploymentObjects(withFieldManager("argocd-controller")),
			[]string{"undo", "shop/web", "--pin", "--reason", "slow"},
			[]string{`application/merge-patch+json {"metadata":{"annotations":{` +
				`"rollout.machine.sapcloud.io/last-request":"2026-11-21T14:06:07Z ann requested undo by a pin: slow",` +
				`"rollout.machine.sapcloud.io/pin":"2/1 ann: slow"},"resourceVersion":"7","uid":"d-1"}}`},
			"deployment shop/web is pinned to revision 1 as long as its template is that of revision 2\n" +
				"Next: the machines return to that revision, without rollout steps, and the template stays.\n" +
				"To take it back: millwright rollout retry shop/web" + follow,
		},
		{
			"approve", withTwoStepPolicy(halfUpdatedDeploymentObjects()),
			[]string{"approve", "shop/web", "--reason", "well"},
			expectedRequestPatch("ann requested approve: well", `"rollout.machine.sapcloud.io/approve":"2/1 ann: well",`, ""),
			"the rollout of revision 2 of deployment shop/web passes step 1 of 2\nNext: the rollout continues." + follow,
		},
		{
			"approve in advance, though paused", withTwoStepPolicy(halfUpdatedDeploymentObjects(pauseDeployment)),
			[]string{"approve", "shop/web", "--steps", "2"},
			expectedRequestPatch("ann requested approve (steps: 2)", `"rollout.machine.sapcloud.io/approve":"2/2 ann",`, ""),
			"the rollout of revision 2 of deployment shop/web passes step 2 of 2, once it is resumed\n" +
				"Next: nothing, until somebody resumes it (millwright rollout resume shop/web)." + follow,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeBackend(c.objects...)
			out, err := w.runCommand(t.Context(), c.args...)
			require.NoError(t, err)
			assert.Equal(t, c.want, w.Patches())
			assert.Equal(t, c.out, out)
		})
	}
}

func TestUselessRolloutRequestsAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"pause shop/db":                    "there is no deployment shop/db",
		"pause shop/":                      `"shop/" names no deployment: give NAME or NAMESPACE/NAME`,
		"pause shop/web -n other":          "shop/web is in namespace shop, but --namespace says other",
		"pause":                            "accepts between 1 and 2 arg",
		"cancel shop/web":                  "cancel needs a reason: --reason TEXT",
		"undo shop/web --to-revision 2":    "revision 2 is the one that deployment shop/web has: it can go back to 1",
		"undo shop/web --to-revision 9":    "deployment shop/web has no set of revision 9: it can go back to 1",
		"undo shop/web --to-revision -1":   "-1 is not a revision: revisions count from 1",
		"resume shop/web":                  "deployment shop/web is neither paused nor held: there is nothing to resume",
		"approve shop/web":                 "a rollout of deployment shop/web has no steps: there is nothing to approve",
		"approve shop/web --steps -1":      "--steps is -1: steps count from 1",
		"undo shop/web --back":             "unknown flag: --back",
		"cancel shop/web --to-revision=1":  "unknown flag: --to-revision",
		"pause shop/web --steps 1":         "unknown flag: --steps",
		"cancel shop/web --back --reason=": "cancel needs a reason",
	} {
		w := newFakeBackend(halfUpdatedDeploymentObjects()...)
		_, err := w.runCommand(t.Context(), strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
		assert.Empty(t, w.Patches(), args)
	}
}

func TestRolloutRequestIsWrittenAgainAfterAConflict(t *testing.T) {
	for name, c := range map[string]struct {
		conflicts int
		meanwhile deploymentEdit
		err       string
		patches   int
	}{
		"as often as is patient":   {kubecli.MaxWriteRetries, nil, "", 1 + kubecli.MaxWriteRetries},
		"and not more often":       {100, nil, "undo deployment shop/web: others wrote it 4 times meanwhile, and nothing was written: try again", 4},
		"as it is by then":         {1, pauseDeployment, "deployment shop/web is paused, and neither a new template nor a former one is rolled out: resume it first", 1},
		"but not on another one":   {1, func(d *v1alpha1.MachineDeployment) { d.UID = "d-2" }, "deployment shop/web was replaced by another one of that name meanwhile: nothing was written", 1},
		"nor on one that is going": {1, func(d *v1alpha1.MachineDeployment) { d.DeletionTimestamp = new(metav1.NewTime(now)) }, "deployment shop/web is being deleted: undo would change nothing", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeBackend(updatedDeploymentObjects()...)
			deployments, left := v1alpha1.SchemeGroupVersion.WithResource("machinedeployments"), c.conflicts
			w.MachineClient.PrependReactor(
				"patch",
				"machinedeployments",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					if left--; left < 0 {
						return false, nil, nil
					}
					changed := newWebDeployment(func(d *v1alpha1.MachineDeployment) { d.ResourceVersion = "8" })
					if c.meanwhile != nil {
						c.meanwhile(changed)
					}
					require.NoError(t, w.MachineClient.Tracker().Update(deployments, changed, "shop"))
					return true, nil, apierrors.NewConflict(
						schema.GroupResource{Resource: "machinedeployments"},
						"web",
						errors.New("changed"),
					)
				},
			)
			out, err := w.runCommand(t.Context(), "undo", "shop/web")
			sent := w.Patches()
			assert.Len(t, sent, c.patches)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				assert.Empty(t, out)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, sent[0], `"resourceVersion":"7","uid":"d-1"`)
			assert.Contains(t, sent[1], `"resourceVersion":"8","uid":"d-1"`, "each carries what was read before it")
			assert.Equal(t, 1, strings.Count(out, "Next:"))
		})
	}
}

func TestRolloutRequestErrors(t *testing.T) {
	for _, c := range []struct{ verb, resource, want string }{
		{"get", "machinedeployments", "get deployment shop/web: away"},
		{"list", "machinesets", "list sets of deployment shop/web: away"},
		{"list", "machines", "list machines: away"},
		{"patch", "machinedeployments", "pause deployment shop/web: away"},
	} {
		w := newFakeBackend(updatedDeploymentObjects()...)
		w.MachineClient.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("away")
		})
		_, err := w.runCommand(t.Context(), "pause", "shop/web")
		require.EqualError(t, err, c.want)
	}
}

func TestRolloutSubcommandsHaveExamplesAndFlags(t *testing.T) {
	c, _, err := Command(kubecli.NewEnvironment()).Find([]string{"undo"})
	require.NoError(t, err)
	assert.Equal(t, "undo", c.Name())
	for _, s := range helpOfRequests() {
		sub, _, err := c.Parent().Find([]string{string(s.Name)})
		require.NoError(t, err)
		assert.Contains(t, sub.Example, "millwright rollout "+string(s.Name))
		for _, flag := range []string{"reason", "as-user"} {
			assert.NotNil(t, sub.Flags().Lookup(flag), "%s --%s", s.Name, flag)
		}
		for _, flag := range []string{"kubeconfig", "namespace"} {
			assert.NotNil(t, sub.InheritedFlags().Lookup(flag), "%s --%s", s.Name, flag)
		}
	}
}

var now, beginTime = clitest.Now, clitest.LastChangeTime

// machineEdit changes one machine.
type machineEdit func(*v1alpha1.Machine)

// fakeBackend has the fakes that the commands of a test connect to.
type fakeBackend struct{ *clitest.FakeBackend }

// newFakeBackend returns a backend with these objects and with the classes of the sets.
func newFakeBackend(objects ...runtime.Object) *fakeBackend {
	classes := map[string]runtime.Object{}
	for _, o := range objects {
		if s, isSet := o.(*v1alpha1.MachineSet); isSet {
			key := metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Spec.Template.Spec.Class.Name}
			classes[key.Name] = &v1alpha1.MachineClass{ObjectMeta: key}
		}
	}
	return &fakeBackend{clitest.NewFakeBackend(slices.AppendSeq(slices.Clone(objects), maps.Values(classes))...)}
}
