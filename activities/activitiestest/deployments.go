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

func DecideDeployment(w *World, in kube.Read) deployment.Decision {
	w.T.Helper()
	return Twice[deployment.Decision](
		w,
		(&deployment.Activities{Kube: w.Kube}).DecideDeployment,
		deployment.Input{Read: in},
	)
}

func DeploymentRead(o metav1.Object) deployment.Input {
	return deployment.Input{Read: Read(o)}
}

// Owned returns a set that a deployment owns.
func Owned(
	d *v1alpha1.MachineDeployment,
	name string,
	replicas int32,
	change ...func(*v1alpha1.MachineSet),
) *v1alpha1.MachineSet {
	return Set(name, replicas, append(change, OwnedBy[*v1alpha1.MachineSet](d))...)
}

func ReportDeployment(w *World, in deployment.Report) v1alpha1.MachineDeploymentStatus {
	w.T.Helper()
	version := Twice[string](w, (&deployment.Activities{Kube: w.Kube}).ReportDeployment, in)
	d := w.Deployment(in.Ref.Name)
	assert.Equal(w.T, d.ResourceVersion, version, "the version to wait for")
	return d.Status
}

// Marked returns the names of the machines whose replacement is granted.
func (w *World) Marked() []string {
	w.T.Helper()
	list, err := w.Machines.MachineV1alpha1().Machines(Shop).List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	names := []string{}
	for _, m := range list.Items {
		if m.Annotations[v1alpha1.AnnotationReplacementGranted] != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

func (w *World) Replacements() []string {
	names := []string{}
	for _, r := range w.Deployment("d").Status.Replacements {
		names = append(names, r.Name)
	}
	return names
}

func DeploymentRequest(d *v1alpha1.MachineDeployment, o request.Order) activitiesrequest.Request {
	return applyRequestInput(request.MachineDeployment, d, o)
}

// Former gives a set an old template of its deployment.
func Former(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }

// RecordedFor is a grant in a deployment's status. The machine may be gone.
func RecordedFor(name string) v1alpha1.MachineReplacement {
	return v1alpha1.MachineReplacement{
		UID:       types.UID("uid-" + name),
		Name:      name,
		Reason:    "HealthTimeout",
		GrantedAt: LongAgo,
	}
}

// CreateSet is the input that creates the first set of a deployment.
func CreateSet(d *v1alpha1.MachineDeployment) deployment.SetCreation {
	return deployment.SetCreation{Deployment: Ref(d), Version: d.ResourceVersion, Creation: rollout.Creation{
		Replicas: int(d.Spec.Replicas), Revision: 1, Desired: int(d.Spec.Replicas), Max: int(d.Spec.Replicas) + 1,
	}}
}

// Forbidden gives a set the label that disables scale-up.
func Forbidden(s *v1alpha1.MachineSet) {
	s.Labels = map[string]string{v1alpha1.LabelScaleUpDisabled: v1alpha1.ValueLowerTrue, "app": "web"}
}

// Policy is a RolloutPolicy for all objects of the namespace.
func Policy(spec v1alpha1.RolloutPolicySpec) *v1alpha1.RolloutPolicy {
	return &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful"}, Spec: spec}
}
