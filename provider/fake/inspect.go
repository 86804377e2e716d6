package fake

import (
	"slices"

	"millwright/provider"
)

// Instances returns all existing instances, in the order of creation.
func (p *Provider) Instances() []provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	instances := make([]provider.Instance, 0, len(p.instances))
	for _, i := range p.instances {
		instances = append(instances, i.Instance)
	}
	return instances
}

// CreatedInstanceCount returns the number of all instances that were ever created, including the instances of
// CreateInstanceByHand.
func (p *Provider) CreatedInstanceCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.createdInstanceCount
}

// UserData returns the user data of a machine's instance, or nil if the machine has no instance.
func (p *Provider) UserData(machineUID string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		if i.MachineUID == machineUID {
			return slices.Clone(i.userData)
		}
	}
	return nil
}

// CreateInstanceByHand creates an instance for a machine even if the machine already has an instance.
// CreateInstanceByHand is for tests of duplicates, orphans and foreign instances.
func (p *Provider) CreateInstanceByHand(class provider.Class, machine provider.Machine) provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addInstance(class, machine).Instance
}

// RemoveInstances removes the instances of a machine, as if an operator had deleted the instances in the cloud, and
// reports whether the machine had instances.
func (p *Provider) RemoveInstances(machineUID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.instances)
	p.removeInstances(func(i *instance) bool { return i.MachineUID == machineUID })
	return len(p.instances) < before
}

// HoldDeletions makes deleted instances remain Terminating until FinishDeletions.
func (p *Provider) HoldDeletions() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.areDeletionsHeld = true
}

// FinishDeletions removes all Terminating instances and undoes HoldDeletions.
func (p *Provider) FinishDeletions() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.areDeletionsHeld = false
	p.removeInstances(func(i *instance) bool { return i.State == provider.Terminating })
}
