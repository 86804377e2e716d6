// Package fake is a Provider in memory that fails, waits and hangs on demand, and counts calls. Unit tests of
// activities and workflows use it in place of a cloud. The local stack uses provider/virtual instead, because the state
// of a fake ends with its process.
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

// Name is what a MachineClass calls this provider.
const Name = "fake"

// CSIDriver is the CSI driver of this cloud's volumes.
const CSIDriver = "csi.fake.millwright"

// userDataKey is the key of Class.Secret whose value UserData returns.
const userDataKey = "userData"

// Provider is a cloud in memory. It is safe for concurrent use.
type Provider struct {
	named      bool            // instances carry no UID
	initialize map[string]bool // classes (namespace/name) whose instances wait to be initialized

	mu            sync.Mutex
	next          int
	instances     []*instance // live instances, in the order of their creation
	holdDeletions bool
	creates       int
	faults
}

var _ provider.Provider = (*Provider)(nil)

// instance is an instance with the input of its creation.
type instance struct {
	provider.Instance
	cluster  string
	class    string
	userData []byte
}

// Option changes a Provider at construction.
type Option func(*Provider)

// WithInitialize makes instances of these classes (namespace/name) wait for InitializeInstance. For other classes,
// InitializeInstance returns Unimplemented.
func WithInitialize(classes ...string) Option {
	return func(p *Provider) {
		for _, class := range classes {
			p.initialize[class] = true
		}
	}
}

// WithNames makes instances carry the name of their machine and no UID.
func WithNames() Option { return func(p *Provider) { p.named = true } }

// New returns an empty cloud without delays and failures.
func New(options ...Option) *Provider {
	p := &Provider{initialize: map[string]bool{}, next: 1, faults: newFaults()}
	for _, option := range options {
		option(p)
	}
	return p
}

// Traits implements provider.Provider. Reads are never stale, because every call holds the lock.
func (p *Provider) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.ByToken, Named: p.named}, nil
}

// CreateInstance implements provider.Provider. It never reads the class's spec.
func (p *Provider) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return call(ctx, p, provider.MethodCreateInstance, class.Secret, func() (provider.Instance, error) {
		if machine.UID == "" || machine.Name == "" || machine.Cluster == "" {
			return provider.Instance{}, provider.Errorf(
				provider.InvalidArgument,
				"the machine needs a name, a UID and a cluster",
			)
		}
		if err := p.foreign(machine); err != nil {
			return provider.Instance{}, err
		}
		if found := p.find(class, machine); len(found) > 0 {
			return p.adopt(found, machine)
		}
		return p.add(class, machine).Instance, nil
	})
}

// InitializeInstance implements provider.Provider.
func (p *Provider) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return call(ctx, p, provider.MethodInitializeInstance, class.Secret, func() (provider.Instance, error) {
		found, err := single(p.find(class, machine), machine)
		switch {
		case err != nil:
			return provider.Instance{}, err
		case !p.initialize[found.class]:
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
	_, err := call(ctx, p, provider.MethodDeleteInstance, class.Secret, func() (struct{}, error) {
		if machine.UID == "" && machine.ProviderID == "" {
			return struct{}{}, provider.Errorf(provider.InvalidArgument, "the machine has neither a UID nor a provider ID")
		}
		if err := p.foreign(machine); err != nil {
			return struct{}{}, err
		}
		found := p.find(provider.Class{}, machine) // without a class, because a name alone deletes nothing
		for _, i := range found {
			i.State = provider.Terminating
		}
		if !p.holdDeletions {
			p.drop(func(i *instance) bool { return slices.Contains(found, i) })
		}
		return struct{}{}, nil
	})
	if provider.CodeOf(err) == provider.NotFound {
		return nil // a NotFound from Fail also counts as a success, as for any provider
	}
	return err
}

// InstanceStatus implements provider.Provider.
func (p *Provider) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	return call(ctx, p, provider.MethodInstanceStatus, class.Secret, func() (provider.Instance, error) {
		found, err := single(p.find(class, machine), machine)
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
	return call(ctx, p, provider.MethodListInstances, class.Secret, func() ([]provider.Instance, error) {
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

// VolumeIDs implements provider.Provider: it keeps the volumes of CSIDriver.
func (p *Provider) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	return call(ctx, p, provider.MethodVolumeIDs, nil, func() ([]string, error) {
		ids := []string{}
		for _, volume := range volumes {
			if volume.CSIDriver == CSIDriver && volume.Handle != "" {
				ids = append(ids, volume.Handle)
			}
		}
		return ids, nil
	})
}

// foreign returns the error of provider.Foreign for an instance of the machine's cluster; nil if there is none. The
// caller holds the lock.
func (p *Provider) foreign(machine provider.Machine) error {
	for _, i := range p.instances {
		if err := provider.Foreign(i.Instance, machine); err != nil && i.cluster == machine.Cluster {
			return err
		}
	}
	return nil
}

// find returns the instances of a machine: those with its UID tag; else the one with its provider ID; else those of the
// class with its name and without a UID. The caller holds the lock.
func (p *Provider) find(class provider.Class, machine provider.Machine) []*instance {
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

func (p *Provider) adopt(found []*instance, machine provider.Machine) (provider.Instance, error) {
	i, err := single(found, machine)
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

// add makes an instance. The caller holds the lock.
func (p *Provider) add(class provider.Class, machine provider.Machine) *instance {
	id := fmt.Sprintf("i-%d", p.next)
	p.next++
	p.creates++
	state := provider.Running
	if p.initialize[classKey(class)] {
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
	if p.named {
		made.MachineUID = ""
	}
	p.instances = append(p.instances, made)
	return made
}

func (p *Provider) drop(unwanted func(*instance) bool) {
	p.instances = slices.DeleteFunc(p.instances, unwanted)
}

func single(found []*instance, machine provider.Machine) (*instance, error) {
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
