package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/decide/attention"
	"millwright/decide/scale"
	"millwright/observe"
)

// The resources whose versions writes of classes and Secrets return.
const (
	ClassesResource = observe.Classes
	SecretsResource = observe.Secrets
)

// ClassDecision is what a MachineClass needs next.
type ClassDecision struct {
	Gone    bool // the object does not exist any more: nothing else is set
	Need    attention.Need
	Why     string
	Prepare bool           // our finalizer is missing
	Guard   []SecretTarget // Secrets that the class needs, without our finalizer
	Unguard []SecretTarget // Secrets with our finalizer that no class needs
	Release bool           // no machine refers to a class that is to go, and its Secrets are released
	Seen    Gate           // what was read; a later decision must not be made of anything older
}

// SecretTarget is a Secret as a decision saw it, by its metadata.
type SecretTarget struct {
	Name       string
	UID        string
	Version    string
	Finalizers []string // as they should be
}

// DecideClass reads a class with the classes, machines and Secrets of its namespace, and says which finalizers are missing
// and which have to go. At most scale.MaxBatch Secrets of either kind are named at a time.
func (a *Activities) DecideClass(ctx context.Context, in Read) (ClassDecision, error) {
	class, neighbours, err := a.class(ctx, in)
	if err != nil {
		return ClassDecision{}, err
	}
	if class == nil {
		return ClassDecision{Gone: true, Why: "the object is gone"}, nil
	}
	facts := observe.ClassFacts(class, neighbours)
	need := attention.Class(facts)
	d := ClassDecision{
		Need:    need.Need,
		Why:     need.Why,
		Prepare: !facts.Deleting && !facts.Finalizer,
		Release: empty(facts) && facts.Deleting && facts.Finalizer,
		Seen:    neighbours.Versions(),
	}
	if need.Calm() {
		return d, nil
	}
	for _, s := range first(neighbours.Unguarded(class)) {
		d.Guard = append(d.Guard, target(s, append(slices.Clone(s.Finalizers), v1alpha1.FinalizerSecret)))
	}
	for _, s := range first(neighbours.Unused()) {
		d.Unguard = append(d.Unguard, target(s, without(s.Finalizers, v1alpha1.FinalizerSecret)))
	}
	return d, nil
}

// empty reports whether nothing is left that keeps a class from going.
func empty(f attention.ClassFacts) bool { return f.Machines == 0 && f.Unused == 0 }

// first returns as many of them as one decision may name.
func first[T any](all []T) []T { return all[:min(len(all), scale.MaxBatch)] }

func target(s *metav1.PartialObjectMetadata, finalizers []string) SecretTarget {
	return SecretTarget{Name: s.Name, UID: string(s.UID), Version: s.ResourceVersion, Finalizers: finalizers}
}

// class returns a class and what lies in its namespace, as fresh as asked for; no class when it is gone.
func (a *Activities) class(ctx context.Context, in Read) (*v1alpha1.MachineClass, observe.Neighbours, error) {
	live, err := a.fresh(ctx, in)
	if err != nil {
		return nil, observe.Neighbours{}, err
	}
	neighbours := a.Cluster.Neighbours(in.Ref.Namespace)
	if live {
		if neighbours, err = a.Cluster.LiveNeighbours(ctx, in.Ref.Namespace); err != nil {
			return nil, neighbours, err
		}
	}
	return neighbours.Class(in.Ref.UID), neighbours, nil
}

// FinalizeClass puts our finalizer on a class, or takes it off one that is being deleted, to which no machine refers and
// whose Secrets are released. It returns the version to wait for.
func (a *Activities) FinalizeClass(ctx context.Context, in Read) (string, error) {
	class, neighbours, err := a.class(ctx, in)
	if err != nil {
		return "", err
	}
	if class == nil {
		return "", objectGone(in.Ref)
	}
	finalizers, change := finalizers(class, empty(observe.ClassFacts(class, neighbours)))
	if !change {
		return class.ResourceVersion, nil
	}
	data, err := seen(map[string]any{"metadata": map[string]any{"finalizers": finalizers}}, class)
	if err != nil {
		return "", err
	}
	class, err = a.Cluster.Client().MachineV1alpha1().MachineClasses(in.Ref.Namespace).Patch(ctx, in.Ref.Name, types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		return "", writeError(in.Ref, err)
	}
	return class.ResourceVersion, nil
}

// SecretChanges are the Secrets of a class's namespace that get other finalizers.
type SecretChanges struct {
	Class   Ref
	Secrets []SecretTarget
}

// FinalizeSecrets writes the finalizers of Secrets, each if it still is as the decision saw it. It asks for the metadata
// alone: what is in a Secret is not answered. A Secret that is gone needs nothing. One that changed is a Conflict, reported
// when the others are done; so run again it writes nothing twice. It returns the versions to wait for.
func (a *Activities) FinalizeSecrets(ctx context.Context, in SecretChanges) (Gate, error) {
	secrets := a.Cluster.SecretMetadata(in.Class.Namespace)
	versions := make([]string, len(in.Secrets))
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	for i, s := range in.Secrets {
		group.Go(func() error {
			object := &metav1.ObjectMeta{Name: s.Name, UID: types.UID(s.UID), ResourceVersion: s.Version}
			data, err := seen(map[string]any{"metadata": map[string]any{"finalizers": s.Finalizers}}, object)
			if err != nil {
				return err
			}
			written, err := secrets.Patch(ctx, s.Name, types.MergePatchType, data, metav1.PatchOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return secretError(Ref{Namespace: in.Class.Namespace, Name: s.Name, UID: s.UID}, err)
			}
			versions[i] = written.ResourceVersion
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	gate := Gate{}
	for _, version := range versions {
		gate.Raise(observe.Secrets, version)
	}
	return gate, nil
}

// secretError is writeError for a Secret: of what the API server answers it tells the code and the reason only. Whoever
// stands behind it, an admission webhook for one, has seen what is in the Secret, and may say it.
func secretError(ref Ref, err error) error {
	var status apierrors.APIStatus
	if apierrors.IsConflict(err) || !errors.As(err, &status) {
		return writeError(ref, err)
	}
	told := fmt.Sprintf("change finalizers of Secret %s: the API server answers %d %s", ref.Key(), status.Status().Code, apierrors.ReasonForError(err))
	var refused *temporal.ApplicationError
	if errors.As(writeError(ref, err), &refused) {
		return temporal.NewApplicationErrorWithOptions(told, TypeRefused, temporal.ApplicationErrorOptions{NonRetryable: true})
	}
	return errors.New(told)
}
