package fake

import (
	"slices"

	"millwright/provider"
)

// Instances returns every live instance, in the order of their creation.
func (p *Provider) Instances() []provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	instances := make([]provider.Instance, 0, len(p.instances))
	for _, i := range p.instances {
		instances = append(instances, i.Instance)
	}
	return instances
}

// Creates returns how many instances were ever created, including planted ones.
func (p *Provider) Creates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates
}

// UserData returns the user data of a machine's instance; nil if there is none.
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

// CreateByHand creates an instance for a machine even if the machine has one: for tests of duplicates, orphans and foreign
// instances.
func (p *Provider) CreateByHand(class provider.Class, machine provider.Machine) provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.add(class, machine).Instance
}

// Vanish removes the instances of a machine as if somebody else had deleted them. It reports whether there were any.
func (p *Provider) Vanish(machineUID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.instances)
	p.drop(func(i *instance) bool { return i.MachineUID == machineUID })
	return len(p.instances) < before
}

// HoldDeletions makes deleted instances stay Terminating until FinishDeletions.
func (p *Provider) HoldDeletions() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdDeletions = true
}

// FinishDeletions removes the Terminating instances and ends HoldDeletions.
func (p *Provider) FinishDeletions() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holdDeletions = false
	p.drop(func(i *instance) bool { return i.State == provider.Terminating })
}
