package cloud

import (
	"cmp"
	"context"
	"errors"

	"millwright/decide/ownership"
	"millwright/provider"
)

// requireUnclaimedInstance returns an error if an instance was found by its name alone and another Machine names the
// instance. If no other Machine names the instance, another controller may have created it for this machine, without a
// UID.
func (p *Activities) requireUnclaimedInstance(ctx context.Context, in InstanceCall, instance provider.Instance) error {
	if instance.MachineUID != "" || in.ProviderID != "" {
		return nil
	}
	// the provider found the instance for in.Machine
	instance.MachineName = cmp.Or(instance.MachineName, in.Machine.Name)
	owner, err := p.findInstanceOwner(ctx, in, instance)
	if err == nil && !owner.HasOwnerKind(ownership.OwnerSelf) {
		err = provider.Errorf(provider.AlreadyExists, "%s", owner.Why)
	}
	return err
}

// findInstanceOwner reads the Machines of all namespaces from the API server, and returns who owns an instance: the
// given machine or another machine. Concurrent calls share one list.
func (p *Activities) findInstanceOwner(
	ctx context.Context,
	in InstanceCall,
	i provider.Instance,
) (ownership.OwnerAnswer, error) {
	me := ownership.Machine{
		Namespace: in.Machine.Namespace, Name: in.Machine.Name, UID: in.Machine.UID, ProviderID: in.ProviderID,
	}
	others, err := p.claimReader.readClaims(ctx, p.Classes)
	if err != nil {
		return ownership.OwnerAnswer{}, &provider.Error{
			Code: provider.Unavailable, Message: "the API server did not list the Machines", Cause: err,
		}
	}
	of := ownership.Instance{ProviderID: i.ProviderID, MachineUID: i.MachineUID, MachineName: i.MachineName}
	return ownership.OwnerOfInstance(of, me, others), nil
}

// callCloudAsOwner calls the cloud for a machine. If the machine names an instance, callCloudAsOwner requires proof
// that the machine owns the instance. If the provider refuses an instance because it carries another UID,
// callCloudAsOwner reads all Machines, and repeats the call if the machine owns the instance. In a cloud whose
// instances carry no UID, callCloudAsOwner reads all Machines before the call. If callCloudAsOwner read the Machines,
// it returns the owner of the instance. callCloudAsOwner returns the error AlreadyExists if the owner is another
// machine or is in doubt.
func (p *Activities) callCloudAsOwner(
	ctx context.Context,
	in InstanceCall,
	class provider.Class,
	machine *provider.Machine,
	call func() error,
) (owner ownership.OwnerAnswer, err error) {
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
	if owner, err = p.findInstanceOwner(ctx, in, seen); err != nil {
		return owner, err
	}
	if !owner.HasOwnerKind(ownership.OwnerSelf) {
		return owner, provider.Errorf(provider.AlreadyExists, "%s", owner.Why)
	}
	machine.FormerUID = seen.MachineUID
	return owner, call()
}
