package cloud

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/decide/orphan"
	"millwright/provider"
)

// OrphanSearch says of which class's instances a sweep asks whose they are.
type OrphanSearch struct {
	Class     kube.Ref
	At        time.Time // the workflow's time: clocks of two workers must not be compared
	Sightings []orphan.Sighting
	Settings  orphan.Settings
}

// OrphanDecision is what a sweep found.
type OrphanDecision struct {
	Gone bool // the class does not exist any more, or another one has its name: nothing else is set
	orphan.Decision
}

// machinesPerPage is how many machines are read with one request. Source: the page size of client-go's informers.
const machinesPerPage = 500

// FindOrphans asks the cloud for the instances of a class, and then the API server, past all caches, for the machines of its
// namespace: whatever has an instance by the first answer has its machine in the second. Whoever does not answer, or not
// completely, ends the attempt. It changes nothing.
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
		return OrphanDecision{}, p.unlisted(ctx, class, err)
	}
	machines, err := p.liveMachines(ctx, in.Class.Namespace)
	if err != nil {
		return OrphanDecision{}, err
	}
	facts := orphan.Facts{
		Now: in.At, Allowed: mc.Annotations[v1alpha1.AnnotationCollectOrphans],
		Machines: machines, Sightings: in.Sightings, Settings: in.Settings,
	}
	for _, i := range listed {
		facts.Instances = append(facts.Instances, orphan.Instance{ProviderID: i.ProviderID, Machine: i.MachineName, UID: i.MachineUID, Created: i.Created})
	}
	return OrphanDecision{Decision: orphan.Decide(facts)}, nil
}

// OrphanCall names the instances of a machine that does not exist.
type OrphanCall struct {
	Class  kube.Ref
	Target orphan.Target
}

// OrphanEnd is what became of them.
type OrphanEnd struct {
	Kept string // why they were not deleted; empty: the provider says that they are gone
}

// CollectOrphan deletes the instances of a machine that does not exist, and returns when the provider says that they are gone.
// Each attempt first asks the API server for the machine, past all caches: only its word that there is none, or another one of
// that name, lets them go. Doing it twice is harmless: what is gone stays gone.
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
	// Without a provider ID: where these are names, another machine's instance may have this one by now.
	machine := provider.Machine{Cluster: p.Cluster, Namespace: in.Class.Namespace, Name: in.Target.Machine, UID: in.Target.UID}
	switch gone, err := p.remove(ctx, class.Class, machine); {
	case err != nil:
		return OrphanEnd{}, p.unlisted(ctx, class, err)
	case !gone:
		return OrphanEnd{}, terminating(ctx, machine.Name)
	}
	return OrphanEnd{}, nil
}

// usableClass reads a class and its Secrets; a problem that people have to mend is an error.
func (p *Provider) usableClass(ctx context.Context, ref kube.Ref) (boundClass, error) {
	class, problem, err := p.class(ctx, ref.Namespace, ref.Name)
	if err == nil && problem != nil {
		err = unlisted(*problem)
	}
	return class, err
}

// claimed says why instances are to be kept: their machine is there after all, or one of that name says that they are its own.
func (p *Provider) claimed(ctx context.Context, in OrphanCall) (string, error) {
	mc, err := p.liveClass(ctx, in.Class)
	switch {
	case err != nil:
		return "", err
	case mc == nil:
		return fmt.Sprintf("MachineClass %s is gone", in.Class.Key()), nil
	}
	m, err := p.Classes.MachineV1alpha1().Machines(in.Class.Namespace).Get(ctx, in.Target.Machine, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		return "", nil
	case err != nil:
		return "", noMachines(fmt.Errorf("get machine %s/%s: %w", in.Class.Namespace, in.Target.Machine, err))
	case string(m.UID) == in.Target.UID:
		return fmt.Sprintf("Machine %s exists", m.Name), nil
	}
	if id := m.Spec.ProviderID; slices.Contains(in.Target.ProviderIDs, id) {
		return fmt.Sprintf("Machine %s names instance %s", m.Name, id), nil
	}
	return "", nil
}

// liveClass reads a class from the API server; nil when it is gone, or another one has its name.
func (p *Provider) liveClass(ctx context.Context, ref kube.Ref) (*v1alpha1.MachineClass, error) {
	mc, err := p.Classes.MachineV1alpha1().MachineClasses(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err):
		return nil, nil
	case err != nil:
		return nil, noMachines(fmt.Errorf("get class %s: %w", ref.Key(), err))
	case string(mc.UID) != ref.UID:
		return nil, nil
	}
	return mc, nil
}

// liveMachines reads what the machines of a namespace claim, all of them or none.
func (p *Provider) liveMachines(ctx context.Context, namespace string) ([]orphan.Machine, error) {
	var machines []orphan.Machine
	options := metav1.ListOptions{Limit: machinesPerPage} // without a version: what the API server has agreed upon
	for {
		list, err := p.Classes.MachineV1alpha1().Machines(namespace).List(ctx, options)
		if err != nil {
			return nil, noMachines(fmt.Errorf("list machines of namespace %s: %w", namespace, err))
		}
		for _, m := range list.Items {
			machines = append(machines, orphan.Machine{Name: m.Name, UID: string(m.UID), ProviderID: m.Spec.ProviderID})
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return machines, nil
		}
	}
}

// noMachines ends a sweep at once when the API server will not tell of its objects: their resource is missing, or we may not
// read it. Both look like a world without machines.
func noMachines(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return kube.Refused(err.Error())
	}
	return err
}

// unlisted is the failure for a cloud that refuses: its type is the code's name. What only people can mend is not tried again
// before the next sweep.
func (p *Provider) unlisted(ctx context.Context, class boundClass, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // what the provider says of it may hold anything
	}
	return unlisted(*problemOf(err, class.Secret))
}

func unlisted(problem kube.Problem) error {
	waits := problem.React == kube.UntilSpec || problem.React == kube.UntilCredential
	return temporal.NewApplicationErrorWithOptions(problem.Message, problem.Reason, temporal.ApplicationErrorOptions{NonRetryable: waits, NextRetryDelay: problem.After})
}
