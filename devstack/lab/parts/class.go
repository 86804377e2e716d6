package parts

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"millwright/devstack/component"
	"millwright/devstack/lab/incus"
	"millwright/devstack/stack"
)

// incusDataFolder is the path of the Incus data in a stack's folder.
func incusDataFolder(l component.StackFolder) string { return l.Path(Incusd) }

// OpenIncus returns the Incus server of a stack with real machines.
func OpenIncus(s *stack.Stack) (*incus.Server, error) {
	return incus.Open(incusDataFolder(s.StackFolder()))
}

// UserData returns the user data with which real machines join the stack; see incus.UserData.
func UserData(s *stack.Stack) (string, error) {
	server, err := OpenIncus(s)
	if err != nil {
		return "", fmt.Errorf("make user data: %w", err)
	}
	authority, err := os.ReadFile(caCertificatePath(s.StackFolder()))
	if err != nil {
		return "", fmt.Errorf("make user data: %w", err)
	}
	return incus.UserData(incus.JoinConfig{Server: server.Network.APIServerURL(), CA: string(authority)})
}

// MachineClassManifest returns a MachineClass of real machines and its Secret as YAML. The MachineClass and the Secret
// have the same name. The machines are containers with the default profile that join the stack.
func MachineClassManifest(s *stack.Stack, namespace, name string) ([]byte, error) {
	server, err := OpenIncus(s)
	if err != nil {
		return nil, fmt.Errorf("make a class of real machines: %w", err)
	}
	userData, err := UserData(s)
	if err != nil {
		return nil, err
	}
	secret := map[string]string{"userData": userData}
	for key, path := range map[string]string{"clientCert": server.ClientCertFile, "clientKey": server.ClientKeyFile, "serverCert": server.ServerCertFile} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("make a class of real machines: %w", err)
		}
		secret[key] = string(text)
	}
	metadata := map[string]string{"namespace": namespace, "name": name}
	var out []byte
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": secret},
		{
			"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": metadata,
			"provider": "incus", "secretRef": metadata,
			"providerSpec": map[string]any{"endpoint": server.URL, "image": map[string]string{"alias": incus.NodeImageAlias}},
		},
	} {
		text, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("make a class of real machines: %w", err)
		}
		out = append(append(out, "---\n"...), text...)
	}
	return out, nil
}
