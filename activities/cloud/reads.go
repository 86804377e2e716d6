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

// classWithSecrets is a MachineClass with the data of the Secrets that it names.
type classWithSecrets struct {
	provider.Class
	hasUserData bool // the class has user data for instances
	// bootstrap token in the user data, kept separately because a message may quote the token alone
	token provider.Secret

	versions          string // versions of the class and its Secrets; see observe/class.VersionsText
	tokenlessVersions string // equals versions if the user data has no placeholder for a bootstrap token; otherwise empty
	isCached          bool   // an earlier call has read the class, so a newer version may exist
}

// classOfCall returns the MachineClass of a call with the Secrets that it names. If an earlier call has read the
// versions that the decision used, classOfCall returns these versions from the cache. Otherwise it reads the current
// versions.
func (p *Activities) classOfCall(ctx context.Context, in InstanceCall) (classWithSecrets, *kube.Problem, error) {
	key := types.NamespacedName{Namespace: in.Machine.Namespace, Name: in.Class}
	if in.Versions != "" {
		if c, found := p.classCache.get(key, in.Versions); found {
			return c, nil, nil
		}
	}
	c, problem, err := p.readClass(ctx, key)
	if err == nil && problem == nil {
		p.classCache.put(key, c)
	}
	return c, problem, err
}

// readClass reads a MachineClass and the Secrets that it names. A missing object is a problem for people, not an error.
func (p *Activities) readClass(ctx context.Context, key types.NamespacedName) (classWithSecrets, *kube.Problem, error) {
	mc, err := p.Classes.MachineV1alpha1().MachineClasses(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return classWithSecrets{}, kube.NewClassNotFoundProblem(key.Namespace, key.Name), nil
	case err != nil:
		return classWithSecrets{}, nil, fmt.Errorf("get class %s: %w", key, err)
	}
	c := classWithSecrets{
		Class: provider.Class{
			Namespace: key.Namespace,
			Name:      key.Name,
			Provider:  mc.Provider,
			Spec:      mc.ProviderSpec.Raw,
			Secret:    provider.Secret{},
		},
		hasUserData: mc.SecretRef != nil,
		versions:    observeclass.VersionText(mc),
	}
	for _, ref := range observeclass.SecretKeysOfClass(mc) { // if two Secrets have the same key, the later value wins
		secret, problem, err := p.readSecret(ctx, c.Class, ref)
		if err != nil || problem != nil {
			return classWithSecrets{}, problem, err
		}
		maps.Copy(c.Secret, secret.Data)
		c.versions += observeclass.VersionText(secret)
	}
	return c, nil, nil
}

// readSecret reads a Secret of a class. A Secret of another namespace must allow the class's namespace. Without
// consent, a user who may write classes could use the credentials of other users, and read what a provider sends to the
// endpoint of a class.
func (p *Activities) readSecret(
	ctx context.Context,
	c provider.Class,
	ref types.NamespacedName,
) (*corev1.Secret, *kube.Problem, error) {
	if ref.Name == "" {
		return nil, kube.NewClassProblem(
			v1alpha1.ReasonClassInvalid,
			"MachineClass %s refers to a Secret without a name",
			c.Name,
		), nil
	}
	secret, err := p.Secrets.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, kube.NewClassProblem(
			v1alpha1.ReasonSecretNotFound,
			"Secret %s of MachineClass %s does not exist",
			ref,
			c.Name,
		), nil
	case err != nil:
		return nil, nil, fmt.Errorf("get secret %s: %w", ref, err)
	case !p.UnaskedSecrets && !observeclass.SecretAllowsNamespace(secret, c.Namespace):
		return nil, kube.NewClassProblem(
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

// checkClassUnchanged returns a retryable error if the class of a failed call, or one of its Secrets, has changed since
// the call read it. Without the retry, the workflow would wait for a change that has already happened.
// checkClassUnchanged removes the old version from the cache.
func (p *Activities) checkClassUnchanged(ctx context.Context, class classWithSecrets) error {
	if !class.isCached {
		return nil
	}
	key := types.NamespacedName{Namespace: class.Namespace, Name: class.Name}
	fresh, problem, err := p.readClass(ctx, key)
	if err == nil && (problem != nil || fresh.versions != class.versions) {
		p.classCache.removeVersion(key, class.versions)
		err = kube.CacheBehindError(
			fmt.Sprintf("MachineClass %s or its Secret has changed, so the call is made again", class.Name),
		)
	}
	return err
}

// classCacheTTL is how long a class with its Secrets stays cached after the last call that needed it. Source: the calls
// for the machines of one pool follow each other within seconds.
const classCacheTTL = 10 * time.Second

// classCache caches one version of each class that calls have read, as long as further calls need this version. The
// zero classCache is ready to use and safe for concurrent use.
type classCache struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]*cachedClass
}

type cachedClass struct {
	classWithSecrets
	expiryTimer *time.Timer // the timer removes the class from the cache
}

// get returns a class from the cache if the cached class has these versions. The caller may change the returned Secret
// map, because it is a copy.
func (r *classCache) get(key types.NamespacedName, versions string) (c classWithSecrets, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.entries[key]
	if k == nil || k.versions != versions {
		return classWithSecrets{}, false
	}
	k.expiryTimer.Reset(classCacheTTL)
	c = k.classWithSecrets
	c.Secret, c.Spec, c.isCached = maps.Clone(k.Secret), append([]byte(nil), k.Spec...), true
	return c, true
}

// put caches a class, and replaces the cached version.
func (r *classCache) put(key types.NamespacedName, c classWithSecrets) {
	c.Secret, c.Spec = maps.Clone(c.Secret), append([]byte(nil), c.Spec...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries == nil {
		r.entries = map[types.NamespacedName]*cachedClass{}
	}
	if before := r.entries[key]; before != nil {
		before.expiryTimer.Stop()
	}
	k := &cachedClass{classWithSecrets: c}
	k.expiryTimer = time.AfterFunc(classCacheTTL, func() { r.removeVersion(key, c.versions) })
	r.entries[key] = k
}

// removeVersion removes a class from the cache if it is cached at these versions.
func (r *classCache) removeVersion(key types.NamespacedName, versions string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.entries[key]; k != nil && k.versions == versions {
		k.expiryTimer.Stop()
		delete(r.entries, key)
	}
}
