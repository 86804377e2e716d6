// Package mcmdriver serves a driver of machine-controller-manager (MCM) as a provider: an existing driver, unchanged,
// becomes the worker of a provider's queue. It builds MCM's objects from a class and a machine, calls the driver as
// MCM's controller does, and turns the driver's codes into those of package provider. docs/provider.md says what a
// driver can promise.
package mcmdriver

import (
	"cmp"
	"context"
	"time"

	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	corev1 "k8s.io/api/core/v1"

	"millwright/provider"
	"millwright/provider/driver"
)

const (
	// defaultWindow is the consistency window of a cloud without WithWindow. No cloud behind MCM's drivers documents a
	// bound: EC2 advises to repeat reads after a couple of seconds, and for up to five minutes. Source of 5 s: MCM
	// itself reads again after this time (ShortRetry), so Millwright never waits less than MCM before it decides.
	defaultWindow = 5 * time.Second

	// searchInterval is the time between two searches for an earlier creation. Source: that of defaultWindow;
	// Millwright does not ask a cloud more often than MCM does.
	searchInterval = 5 * time.Second
)

// settings are what the options change.
type settings struct {
	window  time.Duration
	adapter []driver.Option
}

// Option changes how the driver is used.
type Option func(*settings)

// WithWindow sets the consistency window of the driver's cloud: how long after a create request the cloud's reads may
// not show the instance. The default is 5 s. After an interrupted creation, the next creation or deletion waits so long
// for the instance. If the cloud takes longer, the next creation may make a second instance.
func WithWindow(window time.Duration) Option {
	return func(s *settings) { s.window = window }
}

// WithAdapter passes options on to package driver.
func WithAdapter(options ...driver.Option) Option {
	return func(s *settings) { s.adapter = append(s.adapter, options...) }
}

// New returns the provider of a driver. The provider is safe for concurrent use if the driver is, which MCM requires.
func New(d mcm.Driver, options ...Option) *driver.Provider {
	s := settings{window: defaultWindow, adapter: []driver.Option{driver.WithSearchInterval(searchInterval)}}
	for _, option := range options {
		option(&s)
	}
	return driver.New(&shim{mcm: d, window: s.window}, s.adapter...)
}

// shim is a driver.Driver that calls a driver of MCM.
type shim struct {
	mcm       mcm.Driver
	window    time.Duration
	creations creations
}

var (
	_ driver.Driver      = (*shim)(nil)
	_ driver.Initializer = (*shim)(nil)
	_ driver.VolumeNamer = (*shim)(nil)
)

// Traits implements driver.Driver. MCM's drivers tag instances with the machine's name, and send no token.
func (s *shim) Traits(context.Context, provider.Class) (provider.Traits, error) {
	return provider.Traits{Idempotency: provider.NotIdempotent, Named: true, Window: s.window}, nil
}

// Find implements driver.Driver. It returns no instance for a machine without a name and a provider ID, because a
// driver of MCM cannot search by UID.
func (s *shim) Find(ctx context.Context, class provider.Class, machine provider.Machine) (driver.Found, error) {
	if machine.Name == "" && machine.ProviderID == "" {
		return driver.Found{}, nil
	}
	instances, err := s.look(ctx, class, machine)
	if err == nil && len(instances) == 0 && s.creations.run(machine) {
		err = provider.Errorf(
			provider.Aborted,
			"an earlier create call of the driver for machine %s has not ended yet",
			machine.Name,
		)
	}
	return driver.Found{Instances: instances}, err
}

// look asks the driver for the status of the machine's instance. If the driver does not implement this, or finds
// several instances, look lists the instances.
func (s *shim) look(ctx context.Context, class provider.Class, machine provider.Machine) ([]provider.Instance, error) {
	answer, refusal := ask(ctx, class, s.mcm.GetMachineStatus, &mcm.GetMachineStatusRequest{
		Machine: machineOf(class, machine), MachineClass: classOf(class), Secret: secretOf(class),
	})
	one := func(state provider.State) []provider.Instance {
		return []provider.Instance{
			{
				ProviderID:     answer.ProviderID,
				NodeName:       answer.NodeName,
				MachineName:    machine.Name,
				Addresses:      addressesOf(answer.Addresses),
				State:          state,
				LastKnownState: machine.LastKnownState,
			},
		}
	}
	switch code := codeOf(refusal); {
	case code == provider.OK && answer != nil:
		return one(""), nil
	case code == provider.OK:
		return nil, provider.Errorf(provider.Internal, "the driver answered without a status of machine %s", machine.Name)
	case code == provider.NotFound:
		return nil, nil
	case code == provider.NotInitialized && answer != nil && answer.ProviderID != "":
		return one(provider.Uninitialized), nil
	case code == provider.Unimplemented || code == provider.OutOfRange:
		return s.lookInList(ctx, class, machine, refusal)
	}
	return nil, refusal.after(mediumRetry)
}

// lookInList returns the listed instances that have the machine's name or provider ID. It returns status, the error of
// GetMachineStatus, if the driver has no list, or if the list does not show the instances that GetMachineStatus has
// found. A list has no names of nodes; drivers without GetMachineStatus give the node the name of the machine.
func (s *shim) lookInList(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	status *refused,
) ([]provider.Instance, error) {
	listed, refusal := s.list(ctx, class)
	switch {
	case codeOf(refusal) == provider.Unimplemented:
		return nil, status.after(mediumRetry)
	case refusal != nil:
		return nil, refusal.after(mediumRetry)
	}
	var found []provider.Instance
	for _, i := range listed {
		if i.MachineName == machine.Name || i.ProviderID == machine.ProviderID {
			i.NodeName, i.LastKnownState = i.MachineName, machine.LastKnownState
			found = append(found, i)
		}
	}
	if len(found) == 0 && codeOf(status) == provider.OutOfRange {
		return nil, status.after(mediumRetry)
	}
	return found, nil
}

// Create implements driver.Driver. As MCM does, it initializes the new instance. If that fails, it returns the instance
// with state Uninitialized, and the caller initializes it later. If the driver has no initialize step, the state stays
// empty.
//
// A driver that ignores a cancellation still makes the instance. So Create does not return when its context is
// cancelled, but when the driver returns, or at the deadline of the context. Nobody else begins a creation before this
// deadline.
func (s *shim) Create(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	_ driver.Request,
) (provider.Instance, error) {
	end := s.creations.begin(machine)
	create := func(ctx context.Context, request *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
		defer end() // also if Create has returned at its deadline
		return s.mcm.CreateMachine(ctx, request)
	}
	until, release := deadlineOf(ctx)
	defer release()
	answer, refusal := askUntil(ctx, until, class, create, &mcm.CreateMachineRequest{
		Machine: machineOf(class, machine), MachineClass: classOf(class), Secret: secretOf(class),
	})
	if answer == nil {
		answer = &mcm.CreateMachineResponse{}
	}
	made := provider.Instance{
		ProviderID:     answer.ProviderID,
		NodeName:       answer.NodeName,
		MachineName:    machine.Name,
		Addresses:      addressesOf(answer.Addresses),
		LastKnownState: answer.LastKnownState,
	}
	if refusal != nil {
		return made, refusal.after(mediumRetry)
	}
	machine.LastKnownState = cmp.Or(made.LastKnownState, machine.LastKnownState)
	switch initialized, err := s.Initialize(ctx, class, machine, made); provider.CodeOf(err) {
	case provider.OK:
		return initialized, nil
	case provider.Unimplemented:
	default:
		made.State = provider.Uninitialized
	}
	return made, nil
}

// Initialize implements driver.Initializer.
func (s *shim) Initialize(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) (provider.Instance, error) {
	machine.ProviderID = instance.ProviderID
	answer, refusal := ask(ctx, class, s.mcm.InitializeMachine, &mcm.InitializeMachineRequest{
		Machine: machineOf(class, machine), MachineClass: classOf(class), Secret: secretOf(class),
	})
	if refusal != nil {
		return provider.Instance{}, refusal.after(mediumRetry)
	}
	instance.State = ""
	if answer != nil {
		instance.ProviderID = cmp.Or(answer.ProviderID, instance.ProviderID)
		instance.NodeName = cmp.Or(answer.NodeName, instance.NodeName)
		instance.Addresses = append(instance.Addresses, addressesOf(answer.Addresses)...)
	}
	return instance, nil
}

// Delete implements driver.Driver. Unlike other drivers, drivers of MCM need the class's spec for it. The
// LastKnownState that they return is not stored.
func (s *shim) Delete(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
	instance provider.Instance,
) error {
	machine.ProviderID, machine.Name = instance.ProviderID, cmp.Or(machine.Name, instance.MachineName)
	_, refusal := ask(ctx, class, s.mcm.DeleteMachine, &mcm.DeleteMachineRequest{
		Machine: machineOf(class, machine), MachineClass: classOf(class), Secret: secretOf(class),
	})
	if refusal != nil {
		return refusal.after(longRetry)
	}
	return nil
}

// List implements driver.Driver. In MCM, the class names the cluster: a driver lists all instances of this cluster,
// also those of other classes.
func (s *shim) List(ctx context.Context, class provider.Class, _ string) ([]provider.Instance, error) {
	listed, refusal := s.list(ctx, class)
	if refusal != nil {
		return nil, refusal.after(0)
	}
	return listed, nil
}

func (s *shim) list(ctx context.Context, class provider.Class) ([]provider.Instance, *refused) {
	answer, refusal := ask(
		ctx,
		class,
		s.mcm.ListMachines,
		&mcm.ListMachinesRequest{MachineClass: classOf(class), Secret: secretOf(class)},
	)
	if refusal != nil || answer == nil {
		return nil, refusal
	}
	instances := make([]provider.Instance, 0, len(answer.MachineList))
	for id, name := range answer.MachineList {
		instances = append(instances, provider.Instance{ProviderID: id, MachineName: name})
	}
	return instances, nil
}

// VolumeIDs implements driver.VolumeNamer. It leaves out volumes without a CSI driver, because a provider.Volume does
// not say to which cloud they belong.
func (s *shim) VolumeIDs(ctx context.Context, volumes []provider.Volume) ([]string, error) {
	request := &mcm.GetVolumeIDsRequest{}
	for _, v := range volumes {
		if v.CSIDriver == "" {
			continue
		}
		request.PVSpecs = append(
			request.PVSpecs,
			&corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: v.CSIDriver, VolumeHandle: v.Handle},
			}},
		)
	}
	answer, refusal := ask(ctx, provider.Class{}, s.mcm.GetVolumeIDs, request)
	switch {
	case codeOf(refusal) == provider.Unimplemented || refusal == nil && answer == nil:
		return nil, nil
	case refusal != nil:
		return nil, refusal.after(0)
	}
	return answer.VolumeIDs, nil
}

func addressesOf(addresses []corev1.NodeAddress) []provider.Address {
	var converted []provider.Address
	for _, a := range addresses {
		converted = append(converted, provider.Address{Type: string(a.Type), Address: a.Address})
	}
	return converted
}
