package cloud

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/provider"
)

// Checked is the result of CheckClass: whether the worker of a provider can use a class. Checked holds no secret.
type Checked struct {
	Traits    provider.Traits
	Instances int           // number of instances that the cloud lists for the class and this cluster
	Problem   *kube.Problem // why the class cannot be used, with all other fields zero; nil: the class can be used
}

// CheckClass reads a class and its Secrets. CheckClass asks the cloud once for its traits and once for the instances of
// the class. CheckClass writes nothing and may be called at any time.
func (p *Provider) CheckClass(ctx context.Context, in kube.Ref) (Checked, error) {
	stop := kube.Beat(ctx)
	defer stop()
	class, problem, err := p.readClass(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Name})
	if err != nil || problem != nil {
		return Checked{Problem: problem}, err
	}
	if _, has := class.Secret[userDataKey]; class.needsUserData && !has {
		return Checked{Problem: noUserDataProblem(class.Class)}, nil
	}
	checked := Checked{}
	if checked.Traits, err = p.Cloud.Traits(ctx, class.Class); err == nil {
		var listed []provider.Instance
		listed, err = p.Cloud.ListInstances(ctx, class.Class, p.Cluster)
		checked.Instances = len(listed)
	}
	switch {
	case err == nil:
		return checked, nil
	case ctx.Err() != nil:
		return Checked{}, ctx.Err()
	}
	return Checked{Problem: problemFromError(err, class.Secret)}, nil
}
