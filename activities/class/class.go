// Package class has the activities on one MachineClass and its Secrets.
package class

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/phrase"
	"millwright/decide/scale"
	"millwright/observe/cache"
	observeclass "millwright/observe/class"
)

// Activities are the activities of this package. Workflows call the methods of Activities by name.
type Activities struct{ Kube *kube.Kube }

// Keys of MachineClasses and Secrets in the resource versions that activities return.
const (
	ClassesResource = cache.ClassesResource
	SecretsResource = cache.SecretsResource
)

// Decision says what a MachineClass needs next.
type Decision struct {
	Gone    bool // the object no longer exists: only Gone and Why are set
	Need    attention.Need
	Why     string
	Prepare bool           // Millwright's finalizer is missing
	Guard   []SecretTarget // Secrets that the class needs and that lack Millwright's finalizer
	Unguard []SecretTarget // Secrets that have Millwright's finalizer and that no class needs
	Release bool           // the class is being deleted, no machine refers to the class, and its Secrets are released
	// Serving is the status to write about workers of the class's provider; nil: the status is up to date.
	Serving *ServingState    `json:",omitempty"`
	Seen    kube.MinVersions // resource versions that were read; a later decision must not read older versions
}

// SecretTarget is a Secret as the decision read it, without the Secret's data.
type SecretTarget struct {
	Name       string
	UID        string
	Version    string
	Finalizers []string // the desired finalizers
}

// DecideClass reads a class with the classes, machines and Secrets of its namespace, and returns which finalizers are
// missing or must be removed. DecideClass names at most scale.MaxBatchSize Secrets in each of the lists Guard and
// Unguard.
func (a *Activities) DecideClass(ctx context.Context, in kube.ReadInput) (Decision, error) {
	class, neighbours, err := a.readClass(ctx, in)
	if err != nil {
		return Decision{}, err
	}
	if class == nil {
		return Decision{Gone: true, Why: "the object is gone"}, nil
	}
	facts := observeclass.Facts(class, neighbours)
	facts.ServingKnown, facts.Unserved = a.checkPollers(ctx, class)
	need := attention.DecideClass(facts)
	d := Decision{
		Need:    need.Need,
		Why:     need.Why,
		Prepare: !facts.Deleting && !facts.HasFinalizer,
		Release: isClassReleasable(facts) && facts.Deleting && facts.HasFinalizer,
		Seen:    neighbours.ResourceVersions(),
	}
	if need.Need == attention.NeedServingReport {
		d.Serving = &ServingState{Provider: class.ProviderName(), Unserved: facts.Unserved}
		if facts.Unserved {
			d.Serving.Served = a.servedProviders(ctx, neighbours.Classes)
		}
	}
	if need.NeedsNothing() {
		return d, nil
	}
	for _, s := range firstBatch(neighbours.SecretsWithoutFinalizer(class)) {
		d.Guard = append(d.Guard, newSecretTarget(s, append(slices.Clone(s.Finalizers), v1alpha1.FinalizerSecret)))
	}
	for _, s := range firstBatch(neighbours.UnusedSecrets()) {
		d.Unguard = append(d.Unguard, newSecretTarget(s, kube.WithoutItem(s.Finalizers, v1alpha1.FinalizerSecret)))
	}
	return d, nil
}

// ServingState says whether a worker serves the provider of a class.
type ServingState struct {
	kube.ReadInput
	Provider string
	Unserved bool
	Served   []string `json:",omitempty"` // if Unserved: providers of the namespace's classes that a worker serves
}

// checkPollers asks Temporal whether a worker serves the provider of a class. If Temporal does not answer, checkPollers
// returns no error, because the bridge asks again later.
func (a *Activities) checkPollers(ctx context.Context, class *v1alpha1.MachineClass) (asked, unserved bool) {
	if a.Kube.Pollers == nil {
		return false, false
	}
	n, err := a.Kube.Pollers(ctx, class.Namespace, class.ProviderName())
	return err == nil, err == nil && n == 0
}

// servedProviders returns the providers that the classes name and that a worker serves, sorted by name. If a class has
// a misspelt provider name, the correct name is probably in the result.
func (a *Activities) servedProviders(ctx context.Context, classes []*v1alpha1.MachineClass) (served []string) {
	for _, class := range classes {
		name := class.ProviderName()
		if slices.Contains(served, name) || len(served) == maxNamedProviders {
			continue
		}
		if asked, unserved := a.checkPollers(ctx, class); asked && !unserved {
			served = append(served, name)
		}
	}
	slices.Sort(served)
	return served
}

// maxNamedProviders is the largest number of providers that the message of a class names. Source: an installation has
// one to three providers.
const maxNamedProviders = 5

// ReportServing writes the condition Served of a class. The result is the resource version of the class. The activity
// is idempotent.
func (a *Activities) ReportServing(ctx context.Context, in ServingState) (string, error) {
	classes := a.Kube.Cluster.Client().MachineV1alpha1().MachineClasses(in.Ref.Namespace)
	condition := metav1.Condition{
		Type:               v1alpha1.ClassServed,
		Status:             metav1.ConditionTrue,
		Reason:             vocabulary.ReasonWorkerPolls,
		Message:            "a worker serves provider " + in.Provider,
		LastTransitionTime: metav1.NewTime(in.TimeToRecord(ctx)).Rfc3339Copy(),
	}
	if in.Unserved {
		condition.Status, condition.Reason = metav1.ConditionFalse, vocabulary.BlockedByMissingWorker
		condition.Message = fmt.Sprintf(
			"no worker serves provider %s: %sstart one with --queues=provider-%[1]s",
			in.Provider,
			phrase.TextIf(len(in.Served) > 0, "correct the class (served: %s), or ", strings.Join(in.Served, ", ")),
		)
	}
	_, after, err := kube.WriteStatus(
		ctx,
		in.ReadInput,
		classes,
		func(read kube.ReadInput) (class, changed *v1alpha1.MachineClass, err error) {
			class, _, err = a.readClass(ctx, read)
			if err != nil || class == nil {
				return nil, nil, err
			}
			condition.ObservedGeneration = class.Generation
			changed = class.DeepCopy()
			if !meta.SetStatusCondition(&changed.Status.Conditions, condition) {
				return class, class, nil
			}
			return class, changed, nil
		},
	)
	if err != nil {
		return "", err
	}
	return after.ResourceVersion, nil
}

// isClassReleasable reports whether no machine and no Secret prevents the deletion of a class.
func isClassReleasable(f attention.ClassFacts) bool {
	return f.MachineCount == 0 && f.UnusedSecretCount == 0
}

// firstBatch returns at most scale.MaxBatchSize items.
func firstBatch[T any](all []T) []T { return all[:min(len(all), scale.MaxBatchSize)] }

func newSecretTarget(s *metav1.PartialObjectMetadata, finalizers []string) SecretTarget {
	return SecretTarget{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion, Finalizers: finalizers}
}

// readClass returns a class with the objects of its namespace, from the caches, or live if the input requires a live
// read. The class is nil if it is gone.
func (a *Activities) readClass(
	ctx context.Context,
	in kube.ReadInput,
) (*v1alpha1.MachineClass, observeclass.NamespaceObjects, error) {
	if !a.Kube.IsManaged(in) {
		return nil, observeclass.NamespaceObjects{}, nil
	}
	live, err := a.Kube.NeedsLiveRead(ctx, in)
	if err != nil {
		return nil, observeclass.NamespaceObjects{}, err
	}
	neighbours := observeclass.ReadNamespaceObjects(a.Kube.Cluster, in.Ref.Namespace)
	if live {
		if neighbours, err = observeclass.ReadLiveNamespaceObjects(ctx, a.Kube.Cluster, in.Ref.Namespace); err != nil {
			return nil, neighbours, err
		}
	}
	return neighbours.ClassByUID(in.Ref.UID), neighbours, nil
}

// FinalizeClass adds Millwright's finalizer to a class, or removes the finalizer from a class that is being deleted.
// The finalizer is removed only if no machine refers to the class and the class's Secrets are released. The result is
// the resource version of the class.
func (a *Activities) FinalizeClass(ctx context.Context, in kube.ReadInput) (string, error) {
	class, neighbours, err := a.readClass(ctx, in)
	if err != nil {
		return "", err
	}
	classes := a.Kube.Cluster.Client().MachineV1alpha1().MachineClasses(in.Ref.Namespace)
	return kube.AddOrRemoveFinalizer(
		ctx,
		classes,
		in.Ref,
		class,
		class != nil && isClassReleasable(observeclass.Facts(class, neighbours)),
	)
}

// SecretChanges are the Secrets of a class's namespace whose finalizers change.
type SecretChanges struct {
	Class   kube.Ref
	Secrets []SecretTarget
}

// FinalizeSecrets writes the finalizers of Secrets. FinalizeSecrets reads only the metadata of Secrets. A Secret that
// is gone is skipped. A Secret that changed since the decision causes a Conflict, which is returned after the other
// Secrets are written. The activity is idempotent. The result contains the resource versions of the Secrets.
func (a *Activities) FinalizeSecrets(ctx context.Context, in SecretChanges) (kube.MinVersions, error) {
	secrets := a.Kube.Cluster.SecretMetadataClient(in.Class.Namespace)
	return kube.WriteInParallel(cache.SecretsResource, len(in.Secrets), func(i int) (string, error) {
		s := in.Secrets[i]
		seen := &metav1.ObjectMeta{Name: s.Name, UID: types.UID(s.UID), ResourceVersion: s.Version}
		written, err := kube.PatchObject(
			ctx,
			secrets,
			seen,
			map[string]any{"metadata": map[string]any{"finalizers": s.Finalizers}},
		)
		switch {
		case apierrors.IsNotFound(err):
			return "", nil
		case err != nil:
			ref := kube.Ref{Namespace: in.Class.Namespace, Name: s.Name, UID: s.UID}
			return "", kube.ClassifySecretError(ctx, ref, "change finalizers of Secret "+ref.Key(), err)
		}
		return written.ResourceVersion, nil
	})
}
