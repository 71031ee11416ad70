// Stellar-node is an admission plugin for a custom resource: it checks rules that
// the schema of a StellarNode cannot express. The views of the object are
// generated from its CustomResourceDefinition, stellarnodes.yaml.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o stellar-node.wasm .
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
)

//kubewasm:matches CREATE,UPDATE stellarnodes.stellar.org

//go:generate kubewasm gen --package main stellarnodes.yaml

type policy struct {
	Registries []string `json:"registries"` // Prefixes that images may have, any if empty: "docker.io/stellar/".
}

var spec = field.NewPath("spec")

func (p *policy) Validate(req *admission.Request) *admission.Response {
	node := StellarNodeFromJSON(req.Object()).Spec()
	errs := p.check(node)
	if req.Operation() == admission.Update {
		errs = append(errs, unchanged(node, StellarNodeFromJSON(req.OldObject()).Spec())...)
	}
	response := admission.Invalid(errs...)
	if node.Version() == "latest" {
		response = response.WithWarning("spec.version: the tag latest may be another image tomorrow")
	}
	if node.Network() == StellarNodeSpecNetworkMainnet && node.Storage().RetentionPolicy() == StellarNodeSpecStorageRetentionPolicyDelete {
		response = response.WithWarning("spec.storage.retentionPolicy: the data of a node of Mainnet goes with the node")
	}
	return response.WithAuditAnnotation("network", node.Network())
}

// check returns the mistakes of one object.
func (p *policy) check(node StellarNodeSpec) (errs field.ErrorList) {
	if image := node.Image(); image != "" && !hasPrefix(image, p.Registries) {
		errs = append(errs, field.Invalid(spec.Child("image"), image, "must come from "+strings.Join(p.Registries, " or ")))
	}
	if replicas := node.Replicas(); replicas < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), replicas, "must not be negative"))
	}
	switch node.NodeType() {
	case StellarNodeSpecNodeTypeValidator:
		errs = append(errs, validator(node)...)
	case StellarNodeSpecNodeTypeHorizon:
		path, config := spec.Child("horizonConfig"), node.HorizonConfig()
		errs = append(errs, required(path.Child("databaseSecretRef"), config.DatabaseSecretRef()))
		errs = append(errs, required(path.Child("stellarCoreUrl"), config.StellarCoreUrl()))
		if workers := config.IngestWorkers(); workers > 64 {
			errs = append(errs, field.Invalid(path.Child("ingestWorkers"), workers, "must be at most 64"))
		}
	case StellarNodeSpecNodeTypeSorobanRpc:
		errs = append(errs, required(spec.Child("sorobanConfig", "stellarCoreUrl"), node.SorobanConfig().StellarCoreUrl()))
	}
	return errs
}

func validator(node StellarNodeSpec) (errs field.ErrorList) {
	path, config := spec.Child("validatorConfig"), node.ValidatorConfig()
	errs = append(errs, required(path.Child("seedSecretRef"), config.SeedSecretRef()))
	if replicas := node.Replicas(); replicas > 1 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), replicas, "two Pods with one seed vote against each other"))
	}
	if config.EnableHistoryArchive() && len(config.HistoryArchiveUrls()) == 0 {
		errs = append(errs, field.Required(path.Child("historyArchiveUrls"), "enableHistoryArchive is set"))
	}
	return errs
}

// required returns a mistake if a field is empty, nil otherwise.
func required(path *field.Path, value string) *field.Error {
	if value != "" {
		return nil
	}
	return field.Required(path, "")
}

// unchanged returns a mistake for each field that must not change and has.
func unchanged(node, old StellarNodeSpec) (errs field.ErrorList) {
	if node.NodeType() != old.NodeType() {
		errs = append(errs, field.Forbidden(spec.Child("nodeType"), "is immutable"))
	}
	if node.Network() != old.Network() {
		errs = append(errs, field.Forbidden(spec.Child("network"), "is immutable"))
	}
	return errs
}

func hasPrefix(image string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(image, prefix) {
			return true
		}
	}
	return len(prefixes) == 0
}

func init() { admission.Register(&policy{}) }

func main() {}
