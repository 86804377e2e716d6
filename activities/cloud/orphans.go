package cloud

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
	"millwright/observe/cache"
	"millwright/provider"
)

// OrphanSearch names the class whose instances a sweep searches for orphans.
type OrphanSearch struct {
	Class     kube.Ref
	At        time.Time // the workflow's time, because clocks of two workers must not be compared
	Sightings []orphan.Sighting
	Settings  orphan.Settings
}

// OrphanDecision is the result of the search of a sweep.
type OrphanDecision struct {
	Gone bool // the class does not exist any more, or another one has its name: nothing else is set
	orphan.Decision
}

// FindOrphans reads from the cloud the instances of a class, and then from the API server the machines of all
// namespaces, so that the machine of each instance is in the second answer. An error or an incomplete answer ends the
// attempt. It changes nothing.
func (p *Provider) FindOrphans(ctx context.Context, in OrphanSearch) (OrphanDecision, error) {
	stop := kube.Beat(ctx)
	defer stop()
	mc, err := p.liveClass(ctx, in.Class)
	switch {
	case err != nil:
		return OrphanDecision{}, err
	case mc == nil:
		return OrphanDecision{Gone: true}, nil
	}
	class, err := p.usableClass(ctx, in.Class)
	if err != nil {
		return OrphanDecision{}, err
	}
	listed, err := p.Cloud.ListInstances(ctx, class.Class, p.Cluster)
	if err != nil {
		return OrphanDecision{}, p.cloudFailure(ctx, class, err)
	}
	traits, err := p.Cloud.Traits(ctx, class.Class)
	if err != nil {
		return OrphanDecision{}, p.cloudFailure(ctx, class, err)
	}
	machines, err := p.liveMachines(ctx, in.Class.Namespace)
	if err != nil {
		return OrphanDecision{}, finalIfUnreadable(err)
	}
	facts := orphan.Facts{
		Named: traits.Named,
		Now:   in.At, Allowed: mc.Annotations[v1alpha1.AnnotationCollectOrphans],
		Machines: machines, Sightings: in.Sightings, Settings: in.Settings,
	}
	for _, i := range listed {
		facts.Instances = append(
			facts.Instances,
			orphan.Instance{ProviderID: i.ProviderID, Machine: i.MachineName, UID: i.MachineUID, Created: i.Created},
		)
	}
	return OrphanDecision{Decision: orphan.Decide(facts)}, nil
}

// OrphanCall names the instances of a machine that does not exist.
type OrphanCall struct {
	Class  kube.Ref
	Target orphan.Target
}

// OrphanEnd is the result of CollectOrphan.
type OrphanEnd struct {
	Kept string // why the instances were not deleted; empty: the provider says that they are gone
}

// CollectOrphan deletes the instances of a machine that does not exist, and returns when the provider says that they
// are gone. Each attempt first reads the machines of all namespaces from the API server: the instances are deleted only
// if none of them claims one. Running it twice is harmless.
func (p *Provider) CollectOrphan(ctx context.Context, in OrphanCall) (OrphanEnd, error) {
	stop := kube.Beat(ctx)
	defer stop()
	kept, err := p.claimed(ctx, in)
	if err != nil || kept != "" {
		return OrphanEnd{Kept: kept}, err
	}
	class, err := p.usableClass(ctx, in.Class)
	if err != nil {
		return OrphanEnd{}, err
	}
	machine := provider.Machine{
		Cluster:   p.Cluster,
		Namespace: in.Class.Namespace,
		Name:      in.Target.Machine,
		UID:       in.Target.UID,
	}
	if machine.UID == "" && len(in.Target.ProviderIDs) == 1 {
		// Only then: in a cloud where IDs are names, the instance of another machine may have this one by now.
		machine.ProviderID = in.Target.ProviderIDs[0]
	}
	switch gone, err := p.remove(ctx, class.Class, machine); {
	case err != nil:
		return OrphanEnd{}, p.cloudFailure(ctx, class, err)
	case !gone:
		return OrphanEnd{}, terminating(ctx, machine.Name)
	}
	return OrphanEnd{}, nil
}

// usableClass reads a class and its Secrets; a problem with them is an error.
func (p *Provider) usableClass(ctx context.Context, ref kube.Ref) (boundClass, error) {
	class, problem, err := p.readClass(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	if err == nil && problem != nil {
		err = problemFailure(*problem)
	}
	return class, err
}

// claimed returns why instances are not deleted: their class is gone, or a machine claims one of them.
func (p *Provider) claimed(ctx context.Context, in OrphanCall) (string, error) {
	mc, err := p.liveClass(ctx, in.Class)
	switch {
	case err != nil:
		return "", err
	case mc == nil:
		return fmt.Sprintf("MachineClass %s is gone", in.Class.Key()), nil
	}
	machines, err := p.liveMachines(ctx, in.Class.Namespace)
	if err != nil {
		return "", finalIfUnreadable(err)
	}
	return orphan.Claimed(in.Target, machines), nil
}

// liveClass reads a class from the API server; nil when it is gone, or another one has its name.
func (p *Provider) liveClass(ctx context.Context, ref kube.Ref) (*v1alpha1.MachineClass, error) {
	mc, err := kube.Live(ctx, p.Classes.MachineV1alpha1().MachineClasses(ref.Namespace), "class", ref)
	return mc, finalIfUnreadable(err)
}

// liveMachines reads what the machines of all namespaces claim, all of them or none: a Machine that was moved or
// restored into another namespace names its instance as before.
func (p *Provider) liveMachines(ctx context.Context, namespace string) ([]orphan.Machine, error) {
	var machines []orphan.Machine
	err := cache.EachMachine(ctx, p.Classes, metav1.NamespaceAll, func(m *v1alpha1.Machine) {
		claim := orphan.Machine{Name: m.Name, UID: string(m.UID), ProviderID: m.Spec.ProviderID}
		if m.Namespace != namespace {
			claim.Elsewhere = m.Namespace
		}
		machines = append(machines, claim)
	})
	if err != nil {
		return nil, fmt.Errorf("list machines of all namespaces: %w", err)
	}
	return machines, nil
}

// finalIfUnreadable ends a sweep at once when the resource of the machines is missing, or we may not read it. Retries
// could take that for a cluster without machines.
func finalIfUnreadable(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return kube.Refused(err.Error())
	}
	return err
}

// cloudFailure is the failure for an error of the cloud; its type is the name of the code. An error that only people
// can fix is not retried before the next sweep.
func (p *Provider) cloudFailure(ctx context.Context, class boundClass, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the provider's error for a cancelled call may be anything
	}
	return problemFailure(*problemOf(err, class.Secret))
}

func problemFailure(problem kube.Problem) error {
	waits := problem.React == kube.UntilSpec || problem.React == kube.UntilCredential
	return temporal.NewApplicationErrorWithOptions(problem.Message, problem.Reason,
		temporal.ApplicationErrorOptions{NonRetryable: waits, NextRetryDelay: problem.After})
}
