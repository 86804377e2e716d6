package libvirt

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"millwright/provider"
)

// Spec is the providerSpec of a MachineClass.
type Spec struct {
	// Type is the kind of the domain: "kvm", "qemu" or "test". Required.
	Type string `json:"type"`

	// Definition is the content of the element <domain>: memory, vcpu, os, devices and so on. It must not have the
	// elements that the driver writes: name, uuid, title, metadata. Required.
	//
	// The driver makes no disks. A disk with <transient shareBacking='yes'/> is an overlay over the file of the class,
	// which libvirt makes when the domain starts and removes when it stops.
	Definition string `json:"definition"`

	// UserDataEntry is the fw_cfg entry that gets the user data, such as opt/com.coreos/config for Ignition. Empty: the
	// domain gets none. Whoever may read the XML of the domain reads them.
	UserDataEntry string `json:"userDataEntry,omitempty"`
}

// ParseSpec parses and checks a providerSpec. Errors have code InvalidArgument and name the field.
func ParseSpec(raw json.RawMessage) (Spec, error) {
	var spec Spec
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return Spec{}, provider.Errorf(
			provider.InvalidArgument,
			"providerSpec: %s",
			strings.TrimPrefix(err.Error(), "json: "),
		)
	}
	if spec.Type == "" {
		return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.type: is required")
	}
	if spec.Definition == "" {
		return Spec{}, provider.Errorf(provider.InvalidArgument, "providerSpec.definition: is required")
	}
	return spec, checkDefinition(spec.Definition)
}

// checkDefinition refuses a text that is not XML, and elements that the driver writes.
func checkDefinition(definition string) error {
	decoder := xml.NewDecoder(strings.NewReader(definition))
	for depth := 0; ; {
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return provider.Errorf(provider.InvalidArgument, "providerSpec.definition: %v", err)
		}
		switch element := token.(type) {
		case xml.StartElement:
			if depth == 0 && slices.Contains([]string{"name", "uuid", "title", "metadata"}, element.Name.Local) {
				return provider.Errorf(
					provider.InvalidArgument,
					"providerSpec.definition: <%s> is set by Millwright",
					element.Name.Local,
				)
			}
			depth++
		case xml.EndElement:
			depth--
		}
	}
}

// domain is the XML of a domain, as it is sent to create one.
type domain struct {
	XMLName  xml.Name `xml:"domain"`
	Type     string   `xml:"type,attr"`
	Name     string   `xml:"name"`
	UUID     string   `xml:"uuid"`
	Title    string   `xml:"title"`
	Tags     tags     `xml:"metadata>machine"`
	UserData *fwcfg   `xml:"sysinfo"`
	Rest     string   `xml:",innerxml"`
}

// tags are what a domain says of its machine: the element <machine> in its metadata. It is written in the namespace of
// tagsURI, which libvirt asks for, and read without one, since libvirt takes it off.
type tags struct {
	XMLName xml.Name
	Cluster string `xml:"cluster,attr"`
	Class   string `xml:"class,attr"` // namespace/name of the MachineClass
	Name    string `xml:"name,attr"`
	UID     string `xml:"uid,attr,omitempty"`
}

const tagsURI = "urn:millwright:machine"

type fwcfg struct {
	Type  string `xml:"type,attr"`
	Entry struct {
		Name  string `xml:"name,attr"`
		Value string `xml:",chardata"`
	} `xml:"entry"`
}

func classTag(class provider.Class) string { return class.Namespace + "/" + class.Name }

// definitionOf returns the XML of the domain with that UUID.
func definitionOf(class provider.Class, machine provider.Machine, uuid string) (string, error) {
	spec, err := ParseSpec(class.Spec)
	if err != nil {
		return "", err
	}
	// The name is the UUID too: names are unique at a host, and those of machines only in their namespace.
	wanted := domain{Type: spec.Type, Name: uuid, UUID: uuid, Title: machine.Name, Rest: spec.Definition}
	wanted.Tags = tags{
		XMLName: xml.Name{Space: tagsURI, Local: "machine"},
		Cluster: machine.Cluster, Class: classTag(class), Name: machine.Name, UID: machine.UID,
	}
	if data, has := class.Secret[keyOfUserData]; has && spec.UserDataEntry != "" {
		if !utf8.Valid(data) {
			return "", provider.Errorf(
				provider.InvalidArgument,
				"Secret key %s: is not UTF-8 text, and XML carries nothing else",
				keyOfUserData,
			)
		}
		wanted.UserData = &fwcfg{Type: "fwcfg"}
		wanted.UserData.Entry.Name, wanted.UserData.Entry.Value = spec.UserDataEntry, string(data)
	}
	text, err := xml.Marshal(wanted)
	if err != nil {
		return "", provider.Errorf(provider.Internal, "write the domain's XML: %v", err)
	}
	return string(text), nil
}
