package cloud

import (
	"cmp"
	"context"
	"errors"

	"millwright/decide/ownership"
	"millwright/provider"
)

// unclaimed returns an error if an instance was found by its name alone and another Machine names it. An instance that
// no other Machine names may have been made for the machine by another controller, without a UID.
func (p *Provider) unclaimed(ctx context.Context, in InstanceCall, instance provider.Instance) error {
	if instance.MachineUID != "" || in.ProviderID != "" {
		return nil
	}
	instance.MachineName = cmp.Or(instance.MachineName, in.Machine.Name) // the provider says that it is the machine's
	owner, err := p.whose(ctx, in, instance)
	if err == nil && !owner.Is(ownership.Ours) {
		err = provider.Errorf(provider.AlreadyExists, "%s", owner.Why)
	}
	return err
}

// whose says whose an instance is, as seen from a machine. It reads the Machines of all namespaces from the API server,
// and shares this read with other calls.
func (p *Provider) whose(ctx context.Context, in InstanceCall, i provider.Instance) (ownership.Answer, error) {
	me := ownership.Machine{
		Namespace: in.Machine.Namespace, Name: in.Machine.Name, UID: in.Machine.UID, ProviderID: in.ProviderID,
	}
	others, err := p.claims.read(ctx, p.Classes)
	if err != nil {
		return ownership.Answer{}, &provider.Error{
			Code: provider.Unavailable, Message: "the API server did not list the Machines", Cause: err,
		}
	}
	of := ownership.Instance{ProviderID: i.ProviderID, UID: i.MachineUID, Machine: i.MachineName}
	return ownership.OfInstance(of, me, others), nil
}

// asOwner calls the cloud for a machine. If the machine names an instance, the instance must be proven to be the
// machine's. A provider refuses an instance that carries another UID: then the Machines decide whose it is, and if it
// is the machine's, the cloud is called again. In a cloud whose instances carry no UID, the Machines decide before the
// call. asOwner returns whose the instance is if the Machines were asked, and the error AlreadyExists if it is
// another's or that is in doubt.
func (p *Provider) asOwner(
	ctx context.Context,
	in InstanceCall,
	class provider.Class,
	machine *provider.Machine,
	call func() error,
) (owner ownership.Answer, err error) {
	if in.ProviderID == "" {
		return owner, call()
	}
	seen := provider.Instance{ProviderID: in.ProviderID}
	switch traits, err := p.Cloud.Traits(ctx, class); {
	case err != nil:
		return owner, err
	case !traits.Named:
		err = call()
		refusal, is := errors.AsType[*provider.Error](err)
		if !is || refusal.Code != provider.AlreadyExists || refusal.Instance == nil {
			return owner, err
		}
		seen = *refusal.Instance
	}
	if owner, err = p.whose(ctx, in, seen); err != nil {
		return owner, err
	}
	if !owner.Is(ownership.Ours) {
		return owner, provider.Errorf(provider.AlreadyExists, "%s", owner.Why)
	}
	machine.FormerUID = seen.MachineUID
	return owner, call()
}
