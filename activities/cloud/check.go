package cloud

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/provider"
)

// CheckResult is the result of CheckClass: whether the worker of a provider can use a class. CheckResult contains no
// secret.
type CheckResult struct {
	Traits    provider.Traits
	Instances int           // number of instances that the cloud lists for the class and this cluster
	Problem   *kube.Problem // why the class cannot be used, with all other fields zero; nil: the class can be used
}

// CheckClass reads a class and its Secrets. CheckClass calls the cloud twice: for the traits of the cloud, and for the
// instances of the class. CheckClass writes nothing and may be called at any time.
func (p *Activities) CheckClass(ctx context.Context, in kube.Ref) (CheckResult, error) {
	release, err := p.occupySlot(ctx, in.Namespace)
	if err != nil {
		return CheckResult{}, err
	}
	defer release()
	stop := kube.StartHeartbeats(ctx)
	defer stop()
	class, problem, err := p.readClass(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Name})
	if err != nil || problem != nil {
		return CheckResult{Problem: problem}, err
	}
	if _, has := class.Secret[userDataKey]; class.hasUserData && !has {
		return CheckResult{Problem: noUserDataProblem(class.Class)}, nil
	}
	checked := CheckResult{}
	if checked.Traits, err = p.Cloud.Traits(ctx, class.Class); err == nil {
		var listed []provider.Instance
		listed, err = p.Cloud.ListInstances(ctx, class.Class, p.Cluster)
		checked.Instances = len(listed)
	}
	switch {
	case err == nil:
		return checked, nil
	case ctx.Err() != nil:
		return CheckResult{}, ctx.Err()
	}
	return CheckResult{Problem: problemFromError(err, class.Secret)}, nil
}
