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

// OrphanSearch is the input of FindOrphans: the class whose instances a sweep searches for orphans.
type OrphanSearch struct {
	Class     kube.Ref
	At        time.Time // the workflow's time, because the clocks of two workers must not be compared
	Sightings []orphan.Sighting
	Settings  orphan.Settings
}

// OrphanDecision is the result of FindOrphans.
type OrphanDecision struct {
	Gone bool // the class is gone, or another class has its name; no other field is set then
	orphan.Decision
}

// FindOrphans reads the instances of a class from the cloud, and then the machines of all namespaces from the API
// server. Because the cloud is read first, the list of machines includes the machine of each instance. An error or an
// incomplete answer fails the attempt of FindOrphans. FindOrphans writes nothing.
func (p *Activities) FindOrphans(ctx context.Context, in OrphanSearch) (OrphanDecision, error) {
	release, err := p.occupySlot(ctx, in.Class.Namespace)
	if err != nil {
		return OrphanDecision{}, err
	}
	defer release()
	stop := kube.StartHeartbeats(ctx)
	defer stop()
	mc, err := p.readLiveClass(ctx, in.Class)
	switch {
	case err != nil:
		return OrphanDecision{}, err
	case mc == nil:
		return OrphanDecision{Gone: true}, nil
	}
	class, err := p.readUsableClass(ctx, in.Class)
	if err != nil {
		return OrphanDecision{}, err
	}
	listed, err := p.Cloud.ListInstances(ctx, class.Class, p.Cluster)
	if err != nil {
		return OrphanDecision{}, p.failureForCloudError(ctx, class, err)
	}
	traits, err := p.Cloud.Traits(ctx, class.Class)
	if err != nil {
		return OrphanDecision{}, p.failureForCloudError(ctx, class, err)
	}
	machines, err := p.readLiveClaims(ctx, in.Class.Namespace)
	if err != nil {
		return OrphanDecision{}, makeNonRetryableIfResourceIsMissing(err)
	}
	facts := orphan.Facts{
		IdentifiedByName: traits.Named,
		Now:              in.At, AllowedDeletionsText: mc.Annotations[v1alpha1.AnnotationCollectOrphans],
		Machines: machines, Sightings: in.Sightings, Settings: in.Settings,
	}
	for _, i := range listed {
		facts.Instances = append(
			facts.Instances,
			orphan.Instance{ProviderID: i.ProviderID, MachineName: i.MachineName, MachineUID: i.MachineUID, Created: i.Created},
		)
	}
	return OrphanDecision{Decision: orphan.Decide(facts)}, nil
}

// OrphanCall is the input of CollectOrphan: the instances of a machine that does not exist.
type OrphanCall struct {
	Class  kube.Ref
	Target orphan.DeletionTarget
}

// OrphanCallResult is the result of CollectOrphan.
type OrphanCallResult struct {
	Kept string // why the instances were not deleted; empty: the provider reports that the instances are gone
}

// CollectOrphan deletes the instances of a machine that does not exist. CollectOrphan returns when the provider reports
// that the instances are gone. Each attempt first reads the machines of all namespaces from the API server, and deletes
// the instances only if no machine claims one of the instances. Running CollectOrphan twice is harmless.
func (p *Activities) CollectOrphan(ctx context.Context, in OrphanCall) (OrphanCallResult, error) {
	release, err := p.occupySlot(ctx, in.Class.Namespace)
	if err != nil {
		return OrphanCallResult{}, err
	}
	defer release()
	stop := kube.StartHeartbeats(ctx)
	defer stop()
	kept, err := p.reasonToKeepInstances(ctx, in)
	if err != nil || kept != "" {
		return OrphanCallResult{Kept: kept}, err
	}
	class, err := p.readUsableClass(ctx, in.Class)
	if err != nil {
		return OrphanCallResult{}, err
	}
	machine := provider.Machine{
		Cluster:   p.Cluster,
		Namespace: in.Class.Namespace,
		Name:      in.Target.Machine,
		UID:       in.Target.UID,
	}
	if machine.UID == "" && len(in.Target.ProviderIDs) == 1 {
		// Set the ProviderID only for an instance without a UID. In a cloud that uses names as IDs, an instance of
		// another machine may have this ID now.
		machine.ProviderID = in.Target.ProviderIDs[0]
	}
	switch gone, err := p.deleteInstances(ctx, class.Class, machine); {
	case err != nil:
		return OrphanCallResult{}, p.failureForCloudError(ctx, class, err)
	case !gone:
		return OrphanCallResult{}, instanceTerminatingError(ctx, machine.Name)
	}
	return OrphanCallResult{}, nil
}

// readUsableClass reads a class and its Secrets. A problem with the class is returned as an error.
func (p *Activities) readUsableClass(ctx context.Context, ref kube.Ref) (classWithSecrets, error) {
	class, problem, err := p.readClass(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	if err == nil && problem != nil {
		err = failureForProblem(*problem)
	}
	return class, err
}

// reasonToKeepInstances returns why the instances must not be deleted: their class is gone, or a machine claims one of
// the instances.
func (p *Activities) reasonToKeepInstances(ctx context.Context, in OrphanCall) (string, error) {
	mc, err := p.readLiveClass(ctx, in.Class)
	switch {
	case err != nil:
		return "", err
	case mc == nil:
		return fmt.Sprintf("MachineClass %s is gone", in.Class.Key()), nil
	}
	machines, err := p.readLiveClaims(ctx, in.Class.Namespace)
	if err != nil {
		return "", makeNonRetryableIfResourceIsMissing(err)
	}
	return orphan.ClaimReason(in.Target, machines), nil
}

// readLiveClass reads a class from the API server. readLiveClass returns nil if the class is gone, or if another class
// has its name.
func (p *Activities) readLiveClass(ctx context.Context, ref kube.Ref) (*v1alpha1.MachineClass, error) {
	mc, err := kube.ReadLive(ctx, p.Classes.MachineV1alpha1().MachineClasses(ref.Namespace), "class", ref)
	return mc, makeNonRetryableIfResourceIsMissing(err)
}

// readLiveClaims reads the claims of the machines of all namespaces, completely or not at all. A Machine that was moved
// or restored into another namespace still names its instance.
func (p *Activities) readLiveClaims(ctx context.Context, namespace string) ([]orphan.Machine, error) {
	var machines []orphan.Machine
	err := cache.VisitMachines(ctx, p.Classes, metav1.NamespaceAll, func(m *v1alpha1.Machine) {
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

// makeNonRetryableIfResourceIsMissing makes an error non-retryable if the machines resource is missing, because a retry
// could mistake the missing resource for a cluster without machines. An API server that has just started refuses reads
// that it allows a moment later, so a refusal is retried until the sweep ends.
func makeNonRetryableIfResourceIsMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return kube.RefusedError(err.Error())
	}
	return err
}

// failureForCloudError returns the activity failure for an error of the cloud. The type of the failure is the name of
// the provider's code. An error that only people can fix is not retried before the next sweep.
func (p *Activities) failureForCloudError(ctx context.Context, class classWithSecrets, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the provider's error for a cancelled call may be anything
	}
	return failureForProblem(*problemFromError(err, class.Secret))
}

func failureForProblem(problem kube.Problem) error {
	waits := problem.React == kube.ReactionUntilSpecChange || problem.React == kube.ReactionUntilCredentialChange
	return temporal.NewApplicationErrorWithOptions(problem.Message, problem.Reason,
		temporal.ApplicationErrorOptions{NonRetryable: waits, NextRetryDelay: problem.After})
}
