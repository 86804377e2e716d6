package orphan

import "fmt"

// claims are the ties between machines and instances.
type claims struct {
	byUID, byID map[string]Machine
	moved       map[string]Machine // by name: machines of other namespaces that do not know their instance yet
	here        map[string]Machine // by name: machines of the class's namespace
}

func claimsOf(machines []Machine) claims {
	c := claims{map[string]Machine{}, map[string]Machine{}, map[string]Machine{}, map[string]Machine{}}
	for _, m := range machines {
		c.byUID[m.UID] = m
		if m.ProviderID != "" {
			c.byID[m.ProviderID] = m
		} else if m.Elsewhere != "" {
			c.moved[m.Name] = m
		}
		if m.Elsewhere == "" {
			c.here[m.Name] = m
		}
	}
	return c
}

// of returns the machine that claims an instance, and why; an empty reason means that none does. A machine of another
// namespace may have been moved there while its instance was created, before its provider ID was recorded: then its
// name is the only tie. In the class's namespace, a machine of that name with another UID is a later one, and claims
// nothing.
func (c claims) of(i Instance) (m Machine, why string) {
	if m, found := c.byUID[i.UID]; found {
		return m, m.String() + " exists"
	}
	if m, found := c.byID[i.ProviderID]; found {
		return m, m.String() + " names instance " + i.ProviderID
	}
	if m, found := c.moved[i.Machine]; found {
		return m, m.String() + " has the name of the instance's machine and does not know its instance yet"
	}
	return Machine{}, ""
}

// nobodys reports whether no machine claims an instance. It is for clouds whose instances carry only the name of their
// machine.
func (c claims) nobodys(i Instance) bool {
	_, named := c.byID[i.ProviderID]
	_, here := c.here[i.Machine]
	_, moved := c.moved[i.Machine]
	return i.ProviderID != "" && i.Machine != "" && !named && !here && !moved
}

// unclear returns why it is not clear whose an instance without a tag is; empty: it belongs to a machine. Another
// controller tags instances with the name alone: the machine of that name adopts such an instance, unless the machine
// names another instance.
func (c claims) unclear(i Instance) string {
	namesake, found := c.here[i.Machine]
	_, named := c.byID[i.ProviderID]
	switch {
	case named, i.UID == "" && found && namesake.ProviderID == "" && i.ProviderID != "":
		return ""
	case i.ProviderID == "":
		return "has no provider ID"
	case i.Machine == "" && i.UID == "":
		return "has neither the name nor the UID of a machine"
	case i.Machine == "":
		return "has no name of a machine"
	case found:
		return fmt.Sprintf("has no UID, and the name of %s, which names instance %s", namesake, namesake.ProviderID)
	default:
		return fmt.Sprintf("has no UID, and the name of Machine %s, which does not exist", i.Machine)
	}
}

// Claimed returns why the instances of a target are not deleted; empty: no machine claims one of them.
func Claimed(t Target, machines []Machine) string {
	c := claimsOf(machines)
	for _, id := range t.ProviderIDs {
		if _, why := c.of(Instance{ProviderID: id, Machine: t.Machine, UID: t.UID}); why != "" {
			return why
		}
	}
	if m, found := c.here[t.Machine]; t.UID == "" && found {
		return m.String() + " has the name of the instance"
	}
	return ""
}
