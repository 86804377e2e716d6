package activitiestest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/deployment"
	"millwright/activities/kube"
	activitiesrequest "millwright/activities/request"
	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
)

func DecideDeployment(w *World, in kube.ReadInput) deployment.Decision {
	w.T.Helper()
	return RunActivityTwice[deployment.Decision](
		w,
		(&deployment.Activities{Kube: w.Kube}).DecideDeployment,
		deployment.Input{ReadInput: in},
	)
}

func NewDeploymentInput(o metav1.Object) deployment.Input {
	return deployment.Input{ReadInput: NewReadInput(o)}
}

// NewOwnedSet returns a set that a deployment owns.
func NewOwnedSet(
	d *v1alpha1.MachineDeployment,
	name string,
	replicas int32,
	change ...func(*v1alpha1.MachineSet),
) *v1alpha1.MachineSet {
	return NewMachineSet(name, replicas, append(change, WithOwner[*v1alpha1.MachineSet](d))...)
}

func ReportDeployment(w *World, in deployment.Report) v1alpha1.MachineDeploymentStatus {
	w.T.Helper()
	version := RunActivityTwice[string](w, (&deployment.Activities{Kube: w.Kube}).ReportDeployment, in)
	d := w.Deployment(in.Ref.Name)
	assert.Equal(w.T, d.ResourceVersion, version, "the version to wait for")
	return d.Status
}

// NamesOfMachinesWithReplacementGrant returns the names of the machines whose replacement is granted.
func (w *World) NamesOfMachinesWithReplacementGrant() []string {
	w.T.Helper()
	list, err := w.MachineClient.MachineV1alpha1().Machines(TestNamespace).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	names := []string{}
	for _, m := range list.Items {
		if m.Annotations[v1alpha1.AnnotationReplacementGranted] != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

func (w *World) RecordedReplacementNames() []string {
	names := []string{}
	for _, r := range w.Deployment("d").Status.Replacements {
		names = append(names, r.Name)
	}
	return names
}

func NewDeploymentRequest(d *v1alpha1.MachineDeployment, o request.CommandOrder) activitiesrequest.Request {
	return newApplyRequestInput(request.KindMachineDeployment, d, o)
}

// WithFormerTemplate gives a set an old template of its deployment.
func WithFormerTemplate(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

// NewReplacementRecord is the record of a granted replacement in a deployment's status. The machine that the record
// names may no longer exist.
func NewReplacementRecord(name string) v1alpha1.MachineReplacement {
	return v1alpha1.MachineReplacement{
		UID:       types.UID("uid-" + name),
		Name:      name,
		Reason:    "HealthTimeout",
		GrantedAt: OldTime,
	}
}

// NewSetCreation is the input that creates the first set of a deployment.
func NewSetCreation(d *v1alpha1.MachineDeployment) deployment.SetCreation {
	return deployment.SetCreation{Deployment: NewRef(d), Version: d.ResourceVersion, SetCreation: rollout.SetCreation{
		Replicas: int(d.Spec.Replicas), Revision: 1, Desired: int(d.Spec.Replicas), Max: int(d.Spec.Replicas) + 1,
	}}
}

// WithScaleUpDisabled gives a set the label that disables scale-up.
func WithScaleUpDisabled(s *v1alpha1.MachineSet) {
	s.Labels = map[string]string{v1alpha1.LabelScaleUpDisabled: v1alpha1.ValueLowerTrue, "app": "web"}
}

// NewRolloutPolicy is a RolloutPolicy for all objects of the namespace.
func NewRolloutPolicy(spec v1alpha1.RolloutPolicySpec) *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful"}, Spec: spec}
}
