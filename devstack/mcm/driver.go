package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
)

// cloud is a driver of MCM for the virtual cloud. As drivers of real clouds do, it gives an instance the name of its
// machine and tags for cluster, class and machine, but no UID of the machine, and sends no client token. Provider IDs
// have the form of those of Millwright's provider, so that MCM and Millwright can take over each other's machines.
type cloud struct {
	address string // URL
	cluster string
}

var _ driver.Driver = (*cloud)(nil)

// CreateMachine implements driver.Driver.
func (c *cloud) CreateMachine(
	ctx context.Context,
	request *driver.CreateMachineRequest,
) (*driver.CreateMachineResponse, error) {
	var made instance
	err := c.do(ctx, request.Secret, http.MethodPost, path, creation{
		Name:     request.Machine.Name,
		Tags:     tags{Cluster: c.cluster, Class: tag(request.MachineClass), Machine: request.Machine.Name},
		Spec:     request.MachineClass.ProviderSpec.Raw,
		UserData: request.Secret.Data["userData"],
	}, &made)
	if err != nil {
		return nil, err
	}
	return &driver.CreateMachineResponse{ProviderID: made.ProviderID, NodeName: request.Machine.Name}, nil
}

// InitializeMachine implements driver.Driver. The classes of the tests have no such step.
func (c *cloud) InitializeMachine(
	context.Context,
	*driver.InitializeMachineRequest,
) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "instances need no initialization")
}

// DeleteMachine implements driver.Driver. The instance of a machine without a provider ID is found by the machine's
// name. DeleteMachine returns when the cloud has accepted the deletion.
func (c *cloud) DeleteMachine(
	ctx context.Context,
	request *driver.DeleteMachineRequest,
) (*driver.DeleteMachineResponse, error) {
	found, err := c.find(ctx, request.Machine, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		address := path + "/" + i.ID + "?" + url.Values{"cluster": {c.cluster}}.Encode()
		if err := c.do(ctx, request.Secret, http.MethodDelete, address, nil, nil); err != nil {
			return nil, err
		}
	}
	return &driver.DeleteMachineResponse{}, nil
}

// GetMachineStatus implements driver.Driver. MCM asks it before each creation.
func (c *cloud) GetMachineStatus(
	ctx context.Context,
	request *driver.GetMachineStatusRequest,
) (*driver.GetMachineStatusResponse, error) {
	found, err := c.find(ctx, request.Machine, request.MachineClass, request.Secret)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, status.Error(codes.NotFound, "no instance of machine "+request.Machine.Name)
	case len(found) > 1:
		return nil, status.Error(
			codes.OutOfRange,
			fmt.Sprintf("%d instances of machine %s", len(found), request.Machine.Name),
		)
	}
	return &driver.GetMachineStatusResponse{ProviderID: found[0].ProviderID, NodeName: request.Machine.Name}, nil
}

// ListMachines implements driver.Driver.
func (c *cloud) ListMachines(
	ctx context.Context,
	request *driver.ListMachinesRequest,
) (*driver.ListMachinesResponse, error) {
	listed, err := c.list(ctx, request.MachineClass, request.Secret)
	if err != nil {
		return nil, err
	}
	machines := map[string]string{}
	for _, i := range listed {
		machines[i.ProviderID] = i.Tags.Machine
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}

// GetVolumeIDs implements driver.Driver.
func (c *cloud) GetVolumeIDs(
	_ context.Context,
	request *driver.GetVolumeIDsRequest,
) (*driver.GetVolumeIDsResponse, error) {
	answer := &driver.GetVolumeIDsResponse{}
	for _, volume := range request.PVSpecs {
		if volume.CSI != nil && volume.CSI.Driver == csiDriver {
			answer.VolumeIDs = append(answer.VolumeIDs, volume.CSI.VolumeHandle)
		}
	}
	return answer, nil
}

// find returns the instances with the machine's provider ID or, if the machine has none, with the machine's name.
func (c *cloud) find(
	ctx context.Context,
	machine *v1alpha1.Machine,
	class *v1alpha1.MachineClass,
	secret *corev1.Secret,
) ([]instance, error) {
	listed, err := c.list(ctx, class, secret)
	if err != nil {
		return nil, err
	}
	var found []instance
	for _, i := range listed {
		if i.ProviderID == machine.Spec.ProviderID || machine.Spec.ProviderID == "" && i.Tags.Machine == machine.Name {
			found = append(found, i)
		}
	}
	return found, nil
}

// list returns the instances of the class that are not terminated.
func (c *cloud) list(ctx context.Context, class *v1alpha1.MachineClass, secret *corev1.Secret) ([]instance, error) {
	var listed []instance
	for query := (url.Values{"cluster": {c.cluster}, "class": {tag(class)}}); ; {
		var answer page
		if err := c.do(ctx, secret, http.MethodGet, path+"?"+query.Encode(), nil, &answer); err != nil {
			return nil, err
		}
		for _, i := range answer.Items {
			if i.State != "terminated" {
				listed = append(listed, i)
			}
		}
		if answer.Next == "" {
			return listed, nil
		}
		query.Set("page", answer.Next)
	}
}

// do sends one request and decodes the answer into out, if that is not nil. Its errors have one of MCM's codes.
func (c *cloud) do(ctx context.Context, secret *corev1.Secret, method, where string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	request, err := http.NewRequestWithContext(ctx, method, c.address+where, bytes.NewReader(body))
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret.Data["token"])))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode >= http.StatusMultipleChoices {
		var told refusal
		if err := json.NewDecoder(answer.Body).Decode(&told); err != nil {
			return status.Error(codes.Unknown, answer.Status)
		}
		return status.Error(codes.StringToCode(told.Code), told.Message)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer.Body).Decode(out); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// tag names a class as Millwright's provider does.
func tag(class *v1alpha1.MachineClass) string { return class.Namespace + "/" + class.Name }
