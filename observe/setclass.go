package observe

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
)

const kindClass = "MachineClass"

// classOfSet returns the key of the MachineClass that the template of a set names; empty when it names a class of another
// kind, of which nothing is known.
func classOfSet(set *v1alpha1.MachineSet) string {
	class := set.Spec.Template.Spec.Class
	if class.Kind != kindClass {
		return ""
	}
	return set.Namespace + "/" + class.Name
}

// SetsOfClass returns the sets whose template names a MachineClass (key namespace/name), in no order.
func (c *Cluster) SetsOfClass(key string) []*v1alpha1.MachineSet {
	return indexed[*v1alpha1.MachineSet](c.informers[Sets], byClass, key)
}

func setClassIndex(object any) ([]string, error) {
	if key := classOfSet(object.(*v1alpha1.MachineSet)); key != "" {
		return []string{key}, nil
	}
	return nil, nil
}

// seeClass adds what is to be said of the class that the set's template names; nil: there is none.
func (a *AroundSet) seeClass(set *v1alpha1.MachineSet, class *v1alpha1.MachineClass) {
	a.Missing, a.Class = nil, ""
	switch {
	case class != nil:
		a.Class = class.ResourceVersion
	case classOfSet(set) != "":
		a.Missing = []string{kindClass}
	}
}

// seeLiveClass looks at the API server for a class that the cache does not have.
func (a *AroundSet) seeLiveClass(ctx context.Context, c *Cluster, set *v1alpha1.MachineSet) error {
	if len(a.Missing) == 0 {
		return nil
	}
	class, err := c.client.MachineV1alpha1().MachineClasses(set.Namespace).Get(ctx, set.Spec.Template.Spec.Class.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get class of set %s: %w", set.Name, err)
	}
	a.seeClass(set, class)
	return nil
}
