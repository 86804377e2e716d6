package cloud

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	observeclass "millwright/observe/class"
	"millwright/provider"
)

// boundClass is a MachineClass with the Secrets that it names.
type boundClass struct {
	provider.Class
	boots bool            // it has user data for instances
	token provider.Secret // the bootstrap token in the user data: a message may quote it alone

	versions  string // of the class and its Secrets: see observe/class.Versions
	tokenless string // the same, if the user data has no place for a bootstrap token
	kept      bool   // an earlier call has read it: there may be a newer version by now
}

// class returns the MachineClass of a call with the Secrets that it names. If an earlier call has read the versions
// that the decision saw, it returns those; otherwise it reads the present ones.
func (p *Provider) class(ctx context.Context, in InstanceCall) (boundClass, *kube.Problem, error) {
	key := types.NamespacedName{Namespace: in.Machine.Namespace, Name: in.Class}
	if in.Versions != "" {
		if c, found := p.classes.at(key, in.Versions); found {
			return c, nil, nil
		}
	}
	c, problem, err := p.readClass(ctx, key)
	if err == nil && problem == nil {
		p.classes.keep(key, c)
	}
	return c, problem, err
}

// readClass reads a MachineClass and the Secrets that it names. A missing object is a problem for people, not an error.
func (p *Provider) readClass(ctx context.Context, key types.NamespacedName) (boundClass, *kube.Problem, error) {
	mc, err := p.Classes.MachineV1alpha1().MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return boundClass{}, kube.ClassNotFound(key.Namespace, key.Name), nil
	case err != nil:
		return boundClass{}, nil, fmt.Errorf("get class %s: %w", key, err)
	}
	c := boundClass{
		Class: provider.Class{
			Namespace: key.Namespace,
			Name:      key.Name,
			Provider:  mc.Provider,
			Spec:      mc.ProviderSpec.Raw,
			Secret:    provider.Secret{},
		},
		boots:    mc.SecretRef != nil,
		versions: observeclass.VersionOf(mc),
	}
	for _, ref := range observeclass.SecretsOf(mc) { // if both have a key, the later value counts
		secret, problem, err := p.secret(ctx, c.Class, ref)
		if err != nil || problem != nil {
			return boundClass{}, problem, err
		}
		maps.Copy(c.Secret, secret.Data)
		c.versions += observeclass.VersionOf(secret)
	}
	return c, nil, nil
}

// secret reads a Secret of a class. One of another namespace must allow that: whoever may write classes could use the
// credentials of others, and read what a provider sends to the endpoint of a class.
func (p *Provider) secret(
	ctx context.Context,
	c provider.Class,
	ref types.NamespacedName,
) (*corev1.Secret, *kube.Problem, error) {
	if ref.Name == "" {
		return nil, kube.ClassProblem(
			v1alpha1.ReasonClassInvalid,
			"MachineClass %s refers to a Secret without a name",
			c.Name,
		), nil
	}
	secret, err := p.Secrets.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, kube.ClassProblem(
			v1alpha1.ReasonSecretNotFound,
			"Secret %s of MachineClass %s does not exist",
			ref,
			c.Name,
		), nil
	case err != nil:
		return nil, nil, fmt.Errorf("get secret %s: %w", ref, err)
	case !p.UnaskedSecrets && !observeclass.Allows(secret, c.Namespace):
		return nil, kube.ClassProblem(
			v1alpha1.ReasonSecretNotAllowed,
			"Secret %s does not allow MachineClass %s of namespace %s to use it: its owner has to add %[3]s to its annotation %[4]s",
			ref,
			c.Name,
			c.Namespace,
			v1alpha1.AnnotationAllowedClassNamespaces,
		), nil
	}
	return secret, nil, nil
}

// upToDate returns an error, with which Temporal makes the call again, if the class of a failed call or one of its
// Secrets has changed since it was read for the call. Otherwise the workflow would wait for a change that has already
// happened. The old version is forgotten.
func (p *Provider) upToDate(ctx context.Context, class boundClass) error {
	if !class.kept {
		return nil
	}
	key := types.NamespacedName{Namespace: class.Namespace, Name: class.Name}
	fresh, problem, err := p.readClass(ctx, key)
	if err == nil && (problem != nil || fresh.versions != class.versions) {
		p.classes.forget(key, class.versions)
		err = kube.CacheBehind(fmt.Sprintf("MachineClass %s or its Secret has changed: the call is made again", class.Name))
	}
	return err
}

// classFor is how long a class with its Secrets is kept after the last call that needed it. Source: the calls for the
// machines of one pool follow each other within seconds.
const classFor = 10 * time.Second

// classReads keeps the classes that calls have read, at one version each, as long as further calls need them. The zero
// value is ready. It is safe for concurrent use.
type classReads struct {
	mu   sync.Mutex
	kept map[types.NamespacedName]*keptClass
}

type keptClass struct {
	boundClass
	end *time.Timer // forgets it
}

// at returns a class if it is kept at these versions. The caller may change the map of its Secret.
func (r *classReads) at(key types.NamespacedName, versions string) (c boundClass, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kept[key]
	if k == nil || k.versions != versions {
		return boundClass{}, false
	}
	k.end.Reset(classFor)
	c = k.boundClass
	c.Secret, c.Spec, c.kept = maps.Clone(k.Secret), append([]byte(nil), k.Spec...), true
	return c, true
}

// keep keeps a class in place of the version that is kept.
func (r *classReads) keep(key types.NamespacedName, c boundClass) {
	c.Secret, c.Spec = maps.Clone(c.Secret), append([]byte(nil), c.Spec...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept == nil {
		r.kept = map[types.NamespacedName]*keptClass{}
	}
	if before := r.kept[key]; before != nil {
		before.end.Stop()
	}
	k := &keptClass{boundClass: c}
	k.end = time.AfterFunc(classFor, func() { r.forget(key, c.versions) })
	r.kept[key] = k
}

// forget forgets a class at these versions.
func (r *classReads) forget(key types.NamespacedName, versions string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kept[key]; k != nil && k.versions == versions {
		k.end.Stop()
		delete(r.kept, key)
	}
}
