package orphan

import "fmt"

// claimIndex finds the machines that may claim an instance.
type claimIndex struct {
	machineByUID, machineByProviderID map[string]Machine
	otherNamespaceMachineByName       map[string]Machine // machines of other namespaces without a provider ID, by name
	localMachineByName                map[string]Machine // machines of the class's namespace, by name
}

func newClaimIndex(machines []Machine) claimIndex {
	c := claimIndex{map[string]Machine{}, map[string]Machine{}, map[string]Machine{}, map[string]Machine{}}
	for _, m := range machines {
		c.machineByUID[m.UID] = m
		if m.ProviderID != "" {
			c.machineByProviderID[m.ProviderID] = m
		} else if m.Elsewhere != "" {
			c.otherNamespaceMachineByName[m.Name] = m
		}
		if m.Elsewhere == "" {
			c.localMachineByName[m.Name] = m
		}
	}
	return c
}

// claimingMachine returns the machine that claims an instance, and why; an empty reason means that no machine claims
// the instance. A machine of another namespace may have been moved there before its provider ID was recorded. For such
// a machine, only the name links the machine to the instance. In the class's namespace, a machine of the same name with
// another UID was created later, and claims nothing.
func (c claimIndex) claimingMachine(i Instance) (m Machine, why string) {
	if m, found := c.machineByUID[i.MachineUID]; found {
		return m, m.String() + " exists"
	}
	if m, found := c.machineByProviderID[i.ProviderID]; found {
		return m, m.String() + " names instance " + i.ProviderID
	}
	if m, found := c.otherNamespaceMachineByName[i.MachineName]; found {
		return m, m.String() + " has the name of the instance's machine and does not know its instance yet"
	}
	return Machine{}, ""
}

// isUnclaimed reports whether no machine claims an instance, for clouds whose instances carry only the name of their
// machine.
func (c claimIndex) isUnclaimed(i Instance) bool {
	_, named := c.machineByProviderID[i.ProviderID]
	_, here := c.localMachineByName[i.MachineName]
	_, moved := c.otherNamespaceMachineByName[i.MachineName]
	return i.ProviderID != "" && i.MachineName != "" && !named && !here && !moved
}

// ownerUncertaintyReason returns why the owner of an instance without a UID tag is not known; empty: the instance
// belongs to a machine. Other controllers tag instances only with the machine's name. The machine of that name adopts
// such an instance, unless the machine's provider ID names another instance.
func (c claimIndex) ownerUncertaintyReason(i Instance) string {
	namesake, found := c.localMachineByName[i.MachineName]
	_, named := c.machineByProviderID[i.ProviderID]
	switch {
	case named, i.MachineUID == "" && found && namesake.ProviderID == "" && i.ProviderID != "":
		return ""
	case i.ProviderID == "":
		return "has no provider ID"
	case i.MachineName == "" && i.MachineUID == "":
		return "has neither the name nor the UID of a machine"
	case i.MachineName == "":
		return "has no name of a machine"
	case found:
		return fmt.Sprintf("has no UID, and the name of %s, which names instance %s", namesake, namesake.ProviderID)
	default:
		return fmt.Sprintf("has no UID, and the name of Machine %s, which does not exist", i.MachineName)
	}
}

// ClaimReason returns why the instances of a target are not deleted; empty: no machine claims any of the instances.
func ClaimReason(t DeletionTarget, machines []Machine) string {
	c := newClaimIndex(machines)
	for _, id := range t.ProviderIDs {
		if _, why := c.claimingMachine(Instance{ProviderID: id, MachineName: t.Machine, MachineUID: t.UID}); why != "" {
			return why
		}
	}
	if m, found := c.localMachineByName[t.Machine]; t.UID == "" && found {
		return m.String() + " has the name of the instance"
	}
	return ""
}
