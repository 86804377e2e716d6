package ec2test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcm "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
)

// Names and values in a class and its Secret, as in MCM's driver for AWS.
const (
	ProviderName             = "AWS"
	CSIDriver                = "ebs.csi.aws.com"
	SecretKeyAccessKeyID     = "providerAccessKeyId"
	SecretKeySecretAccessKey = "providerSecretAccessKey"
	SecretKeyUserData        = "userData"

	// DeniedSecretAccessKey is a value of SecretKeySecretAccessKey that the cloud refuses.
	DeniedSecretAccessKey = "denied-secret-access-key"

	// PlacementAnnotation is the annotation in a Machine's spec.nodeTemplate with the placement of the instance.
	PlacementAnnotation = "machine.sapcloud.io/awsPlacement"
)

// readInterval is the time between two reads after the creation of an instance. The interval is short, so that tests do
// not wait unnecessarily.
const readInterval = time.Millisecond

// Spec is the part of a class's providerSpec that this driver reads.
type Spec struct {
	Region string            `json:"region"`
	Tags   map[string]string `json:"tags"`
	// SrcAndDstChecksEnabled = false means that instances need InitializeMachine.
	SrcAndDstChecksEnabled *bool `json:"srcAndDstChecksEnabled,omitempty"`
}

// Driver is a driver for EC2.
type Driver struct {
	Cloud API

	// IgnoresProviderID makes GetMachineStatus ignore the provider ID, as older releases of the driver for AWS do.
	IgnoresProviderID bool

	// LacksGetMachineStatus makes GetMachineStatus return Unimplemented and NodeName equal to the machine's name, as in
	// older releases of the driver for OpenStack.
	LacksGetMachineStatus bool
}

var _ mcm.Driver = (*Driver)(nil)

// parseSpec validates class and Secret, and returns the parsed providerSpec.
func parseSpec(class *v1alpha1.MachineClass, secret *corev1.Secret) (spec Spec, err error) {
	if class.Provider != ProviderName {
		return spec, status.Error(
			codes.InvalidArgument,
			fmt.Sprintf("requested for provider '%s', we only support '%s'", class.Provider, ProviderName),
		)
	}
	if err := json.Unmarshal(class.ProviderSpec.Raw, &spec); err != nil {
		return spec, status.Error(codes.Internal, err.Error())
	}
	if cluster, role := spec.scopeTagKeys(); spec.Region == "" || cluster == "" || role == "" {
		return spec, status.Error(codes.InvalidArgument, "providerSpec needs a region, and tags of a cluster and a role")
	}
	for _, key := range []string{SecretKeyAccessKeyID, SecretKeySecretAccessKey, SecretKeyUserData} {
		if len(secret.Data[key]) == 0 {
			return spec, status.Error(codes.InvalidArgument, "Secret needs the key "+key)
		}
	}
	if string(secret.Data[SecretKeySecretAccessKey]) == DeniedSecretAccessKey {
		return spec, status.Error(codes.Unauthenticated, "AuthFailure: "+DeniedSecretAccessKey+" is not valid")
	}
	return spec, nil
}

// scopeTagKeys returns the keys of the two tags that contain the cluster and the role of an instance.
func (s Spec) scopeTagKeys() (cluster, role string) {
	for key := range s.Tags {
		switch {
		case strings.HasPrefix(key, "kubernetes.io/cluster/"):
			cluster = key
		case strings.HasPrefix(key, "kubernetes.io/role/"):
			role = key
		}
	}
	return cluster, role
}

// findInstances returns the running instances in the scope of the class, from all pages. If id or name is set,
// findInstances returns only instances with this id or name.
func (d *Driver) findInstances(spec Spec, id, name string) (found []Instance, err error) {
	cluster, role := spec.scopeTagKeys()
	for token := ""; ; {
		page, next, err := d.Cloud.DescribeInstances(Filter{TagKeys: []string{cluster, role}, ID: id, Name: name}, token)
		if err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		found = append(found, page...)
		if token = next; token == "" {
			return found, nil
		}
	}
}

// ProviderID returns the provider ID of an instance.
func ProviderID(region, id string) string { return fmt.Sprintf("aws:///%s/%s", region, id) }

func instanceID(providerID string) string { return providerID[strings.LastIndex(providerID, "/")+1:] }

func (d *Driver) nodeName(i Instance) string {
	if d.LacksGetMachineStatus {
		return i.Tags["Name"]
	}
	return i.PrivateDNSName
}

// CreateMachine implements MCM's Driver.
func (d *Driver) CreateMachine(_ context.Context, r *mcm.CreateMachineRequest) (*mcm.CreateMachineResponse, error) {
	spec, err := parseSpec(r.MachineClass, r.Secret)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{"Name": r.Machine.Name}
	maps.Copy(tags, spec.Tags)
	made, err := d.Cloud.RunInstances(Instance{
		Tags:      tags,
		Placement: r.Machine.Spec.NodeTemplateSpec.Annotations[PlacementAnnotation],
		UserData:  string(r.Secret.Data[SecretKeyUserData]),
	})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	for { // wait until reads show the new instance
		found, err := d.findInstances(spec, made.ID, "")
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			break
		}
		time.Sleep(readInterval)
	}
	return &mcm.CreateMachineResponse{
		ProviderID:     ProviderID(spec.Region, made.ID),
		NodeName:       d.nodeName(made),
		LastKnownState: "created " + made.ID,
	}, nil
}

func (d *Driver) needsNetworkSetUp(spec Spec, i Instance) bool {
	return spec.SrcAndDstChecksEnabled != nil && !*spec.SrcAndDstChecksEnabled && !i.IsNetworkReady
}

// InitializeMachine implements MCM's Driver.
func (d *Driver) InitializeMachine(
	_ context.Context,
	r *mcm.InitializeMachineRequest,
) (*mcm.InitializeMachineResponse, error) {
	spec, err := parseSpec(r.MachineClass, r.Secret)
	if err != nil {
		return nil, err
	}
	found, err := d.findInstances(spec, instanceID(r.Machine.Spec.ProviderID), "")
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, status.Error(codes.NotFound, "no instance")
	}
	if d.needsNetworkSetUp(spec, found[0]) {
		ready, err := d.Cloud.SetUpNetwork(found[0].ID)
		if err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		if !ready {
			return nil, status.Error(codes.Uninitialized, "the network interface is not attached")
		}
	}
	return &mcm.InitializeMachineResponse{ProviderID: r.Machine.Spec.ProviderID, NodeName: d.nodeName(found[0])}, nil
}

// DeleteMachine implements MCM's Driver. For a Machine with a provider ID, DeleteMachine terminates the instance even
// if another cluster owns the instance.
func (d *Driver) DeleteMachine(_ context.Context, r *mcm.DeleteMachineRequest) (*mcm.DeleteMachineResponse, error) {
	spec, err := parseSpec(r.MachineClass, r.Secret)
	if err != nil {
		return nil, err
	}
	doomed := []Instance{{ID: instanceID(r.Machine.Spec.ProviderID)}}
	if r.Machine.Spec.ProviderID == "" {
		if doomed, err = d.findInstances(spec, "", r.Machine.Name); err != nil {
			return nil, err
		}
	}
	for _, i := range doomed {
		if err := d.Cloud.TerminateInstance(i.ID); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
	}
	return &mcm.DeleteMachineResponse{}, nil
}

// GetMachineStatus implements MCM's Driver.
func (d *Driver) GetMachineStatus(
	_ context.Context,
	r *mcm.GetMachineStatusRequest,
) (*mcm.GetMachineStatusResponse, error) {
	if d.LacksGetMachineStatus {
		return nil, status.Error(codes.Unimplemented, "GetMachineStatus is not implemented")
	}
	spec, err := parseSpec(r.MachineClass, r.Secret)
	if err != nil {
		return nil, err
	}
	id, name := "", r.Machine.Name
	if r.Machine.Spec.ProviderID != "" && !d.IgnoresProviderID {
		id, name = instanceID(r.Machine.Spec.ProviderID), ""
	}
	found, err := d.findInstances(spec, id, name)
	if err != nil {
		return nil, err
	}
	switch len(found) {
	case 0:
		return nil, status.Error(codes.NotFound, "no instance of machine "+r.Machine.Name)
	case 1:
	default:
		return nil, status.Error(codes.OutOfRange, "several instances of machine "+r.Machine.Name)
	}
	answer := &mcm.GetMachineStatusResponse{
		ProviderID: ProviderID(spec.Region, found[0].ID),
		NodeName:   d.nodeName(found[0]),
	}
	if d.needsNetworkSetUp(spec, found[0]) {
		return answer, status.Error(codes.Uninitialized, "the network interface is not set up")
	}
	return answer, nil
}

// ListMachines implements MCM's Driver.
func (d *Driver) ListMachines(_ context.Context, r *mcm.ListMachinesRequest) (*mcm.ListMachinesResponse, error) {
	spec, err := parseSpec(r.MachineClass, r.Secret)
	if err != nil {
		return nil, err
	}
	found, err := d.findInstances(spec, "", "")
	if err != nil {
		return nil, err
	}
	answer := &mcm.ListMachinesResponse{MachineList: map[string]string{}}
	for _, i := range found {
		answer.MachineList[ProviderID(spec.Region, i.ID)] = i.Tags["Name"]
	}
	return answer, nil
}

// GetVolumeIDs implements MCM's Driver.
func (d *Driver) GetVolumeIDs(_ context.Context, r *mcm.GetVolumeIDsRequest) (*mcm.GetVolumeIDsResponse, error) {
	answer := &mcm.GetVolumeIDsResponse{}
	for _, spec := range r.PVSpecs {
		if spec.CSI != nil && spec.CSI.Driver == CSIDriver && spec.CSI.VolumeHandle != "" {
			answer.VolumeIDs = append(answer.VolumeIDs, spec.CSI.VolumeHandle)
		}
	}
	return answer, nil
}
