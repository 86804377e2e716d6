package cloud

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/provider"
)

// Checked says whether the worker of a provider can use a class. It holds no secret.
type Checked struct {
	Traits    provider.Traits
	Instances int           // that the cloud lists for the class and this cluster
	Problem   *kube.Problem // why the class cannot be used; nil: the cloud has answered. The rest is then not known
}

// CheckClass reads a class and its Secrets, and asks the cloud once: what it promises, and for a list of the class's
// instances. It changes nothing, and may be called at any time.
func (p *Provider) CheckClass(ctx context.Context, in kube.Ref) (Checked, error) {
	stop := kube.Beat(ctx)
	defer stop()
	class, problem, err := p.readClass(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Name})
	if err != nil || problem != nil {
		return Checked{Problem: problem}, err
	}
	if _, has := class.Secret[userDataKey]; class.boots && !has {
		return Checked{Problem: noUserData(class.Class)}, nil
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
	return Checked{Problem: problemOf(err, class.Secret)}, nil
}
