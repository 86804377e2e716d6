// Package fake is an in-memory Provider that counts calls. Tests can make its calls fail, wait or hang. Unit tests of
// activities and workflows use package fake in place of a cloud. The local stack uses provider/virtual instead, because
// the state of a fake is lost when its process ends.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"millwright/provider"
)

// Name is the name of the provider fake in a MachineClass.
const Name = "fake"

// CSIDriver is the name of the CSI driver of the fake cloud's volumes.
const CSIDriver = "csi.fake.millwright"

// userDataKey is the key of the user data in Class.Secret. The method UserData returns the user data of an instance.
const userDataKey = "userData"

// Provider is a cloud in memory. A Provider is safe for concurrent use.
type Provider struct {
	hasNamedInstances         bool            // instances carry no UID tag
	classesWithInitializeStep map[string]bool // classes (namespace/name) with an initialize step

	mu                   sync.Mutex
	nextInstanceNumber   int
	instances            []*instance // existing instances, in the order of creation
	areDeletionsHeld     bool
	createdInstanceCount int
	faults
}

var _ provider.Provider = (*Provider)(nil)

// instance is an instance together with the parameters of its creation.
type instance struct {
	provider.Instance
	cluster  string
	class    string
	userData []byte
}

// Option configures a new Provider.
type Option func(*Provider)

// WithInitializeStep makes instances of the given classes (namespace/name) wait for InitializeInstance.
// InitializeInstance returns Unimplemented for all other classes.
func WithInitializeStep(classes ...string) Option {
	return func(p *Provider) {
		for _, class := range classes {
			p.classesWithInitializeStep[class] = true
		}
	}
}

// WithNamedInstances creates instances with the name of their machine and without a UID tag (Traits.Named).
func WithNamedInstances() Option { return func(p *Provider) { p.hasNamedInstances = true } }

// New returns a cloud without instances, delays and failures.
func New(options ...Option) *Provider {
	p := &Provider{classesWithInitializeStep: map[string]bool{}, nextInstanceNumber: 1, faults: newFaults()}
	for _, option := range options {
		option(p)
	}
	return p
}

// Traits implements provider.Provider. Reads are never stale, because every call holds the lock.
func (p *Provider) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByToken, Named: p.hasNamedInstances}, nil
}

// CreateInstance implements provider.Provider. CreateInstance ignores the class's Spec.
func (p *Provider) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return runCall(ctx, p, provider.MethodCreateInstance, class.Secret, func() (provider.Instance, error) {
		if machine.UID == "" || machine.Name == "" || machine.Cluster == "" {
			return provider.Instance{}, provider.Errorf(
				provider.InvalidArgument,
				"the machine needs a name, a UID and a cluster",
			)
		}
		if err := p.checkForeignInstances(machine); err != nil {
			return provider.Instance{}, err
		}
		if found := p.findInstances(class, machine); len(found) > 0 {
			return p.singleLiveInstance(found, machine)
		}
		return p.addInstance(class, machine).Instance, nil
	})
}

// InitializeInstance implements provider.Provider.
func (p *Provider) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return runCall(ctx, p, provider.MethodInitializeInstance, class.Secret, func() (provider.Instance, error) {
		found, err := singleInstance(p.findInstances(class, machine), machine)
		switch {
		case err != nil:
			return provider.Instance{}, err
		case !p.classesWithInitializeStep[found.class]:
			return provider.Instance{}, provider.Errorf(
				provider.Unimplemented,
				"instances of class %s have no initialize step",
				found.class,
			)
		case found.State == provider.Uninitialized:
			found.State = provider.Running
		}
		return found.Instance, nil
	})
}

// DeleteInstance implements provider.Provider.
func (p *Provider) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	_, err := runCall(ctx, p, provider.MethodDeleteInstance, class.Secret, func() (struct{}, error) {
		if machine.UID == "" && machine.ProviderID == "" {
			return struct{}{}, provider.Errorf(provider.InvalidArgument, "the machine has neither a UID nor a provider ID")
		}
		if err := p.checkForeignInstances(machine); err != nil {
			return struct{}{}, err
		}
		found := p.findInstances(provider.Class{}, machine) // an empty class excludes instances that match only by name
		for _, i := range found {
			i.State = provider.Terminating
		}
		if !p.areDeletionsHeld {
			p.removeInstances(func(i *instance) bool { return slices.Contains(found, i) })
		}
		return struct{}{}, nil
	})
	if provider.CodeOfError(err) == provider.NotFound {
		return nil // DeleteInstance treats a NotFound from FailCalls as success, like every provider
	}
	return err
}

// InstanceStatus implements provider.Provider.
func (p *Provider) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return runCall(ctx, p, provider.MethodInstanceStatus, class.Secret, func() (provider.Instance, error) {
		found, err := singleInstance(p.findInstances(class, machine), machine)
		if err != nil {
			return provider.Instance{}, err
		}
		if found.State == provider.Uninitialized {
			waits := provider.Errorf(provider.NotInitialized, "instance of machine %s waits to be initialized", machine.Name)
			seen := found.Instance
			waits.Instance = &seen
			return provider.Instance{}, waits
		}
		return found.Instance, nil
	})
}

// ListInstances implements provider.Provider.
func (p *Provider) ListInstances(
	ctx context.Context,
	class provider.Class,
	cluster string,
) ([]provider.Instance, error) {
	return runCall(ctx, p, provider.MethodListInstances, class.Secret, func() ([]provider.Instance, error) {
		if cluster == "" {
			return nil, provider.Errorf(provider.InvalidArgument, "the cluster has no name")
		}
		listed := []provider.Instance{}
		for _, i := range p.instances {
			if i.cluster == cluster && i.class == classKey(class) {
				listed = append(listed, i.Instance)
			}
		}
		slices.SortFunc(listed, func(a, b provider.Instance) int { return strings.Compare(a.ProviderID, b.ProviderID) })
		return listed, nil
	})
}

// VolumeIDs implements provider.Provider. VolumeIDs returns the handles of the volumes of CSIDriver.
func (p *Provider) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	return runCall(ctx, p, provider.MethodVolumeIDs, nil, func() ([]string, error) {
		ids := []string{}
		for _, volume := range volumes {
			if volume.CSIDriver == CSIDriver && volume.Handle != "" {
				ids = append(ids, volume.Handle)
			}
		}
		return ids, nil
	})
}

// checkForeignInstances returns an error if provider.ForeignInstanceError returns an error for an instance of the
// machine's cluster. The caller holds the lock.
func (p *Provider) checkForeignInstances(machine provider.Machine) error {
	for _, i := range p.instances {
		if err := provider.ForeignInstanceError(i.Instance, machine); err != nil && i.cluster == machine.Cluster {
			return err
		}
	}
	return nil
}

// findInstances returns the instances with the machine's UID tag. If no instance has the UID tag, findInstances returns
// the instance with the machine's provider ID. If no instance has the UID tag or the provider ID, findInstances returns
// the instances of the class with the machine's name and without a UID tag. The caller holds the lock.
func (p *Provider) findInstances(class provider.Class, machine provider.Machine) []*instance {
	var byUID, byID, byName []*instance
	for _, i := range p.instances {
		if i.cluster != machine.Cluster {
			continue
		}
		if machine.UID != "" && i.MachineUID == machine.UID {
			byUID = append(byUID, i)
		}
		if machine.ProviderID != "" && i.ProviderID == machine.ProviderID {
			byID = append(byID, i)
		}
		if machine.ProviderID == "" && machine.Name != "" && i.MachineUID == "" && i.MachineName == machine.Name &&
			i.class == classKey(class) {
			byName = append(byName, i)
		}
	}
	switch {
	case len(byUID) > 0:
		return byUID
	case len(byID) > 0:
		return byID
	default:
		return byName
	}
}

func (p *Provider) singleLiveInstance(found []*instance, machine provider.Machine) (provider.Instance, error) {
	i, err := singleInstance(found, machine)
	if err != nil {
		return provider.Instance{}, err
	}
	if i.State == provider.Terminating {
		return provider.Instance{}, provider.Errorf(
			provider.Aborted,
			"instance of machine %s is still being terminated",
			machine.Name,
		)
	}
	return i.Instance, nil
}

// addInstance creates an instance. The caller holds the lock.
func (p *Provider) addInstance(class provider.Class, machine provider.Machine) *instance {
	id := fmt.Sprintf("i-%d", p.nextInstanceNumber)
	p.nextInstanceNumber++
	p.createdInstanceCount++
	state := provider.Running
	if p.classesWithInitializeStep[classKey(class)] {
		state = provider.Uninitialized
	}
	made := &instance{
		Instance: provider.Instance{
			ProviderID: "fake:///" + id, NodeName: machine.Name, MachineName: machine.Name, MachineUID: machine.UID,
			Addresses: []provider.Address{{Type: "Hostname", Address: machine.Name}},
			State:     state, Created: time.Now(), LastKnownState: id,
		},
		cluster:  machine.Cluster,
		class:    classKey(class),
		userData: slices.Clone(class.Secret[userDataKey]),
	}
	if p.hasNamedInstances {
		made.MachineUID = ""
	}
	p.instances = append(p.instances, made)
	return made
}

func (p *Provider) removeInstances(unwanted func(*instance) bool) {
	p.instances = slices.DeleteFunc(p.instances, unwanted)
}

func singleInstance(found []*instance, machine provider.Machine) (*instance, error) {
	switch len(found) {
	case 0:
		return nil, provider.Errorf(provider.NotFound, "machine %s has no instance", machine.Name)
	case 1:
		return found[0], nil
	default:
		return nil, provider.Errorf(provider.OutOfRange, "machine %s has %d instances", machine.Name, len(found))
	}
}

func classKey(class provider.Class) string { return class.Namespace + "/" + class.Name }
