package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/admission"
)

func TestPolicy(t *testing.T) {
	const validator = `{"spec":{"nodeType":"Validator","network":"Mainnet","version":"v21","replicas":1,"validatorConfig":{"seedSecretRef":"seed"}}}`
	tests := []struct {
		name, object, oldObject string
		errors, warnings        []string
	}{
		{name: "a validator that can run", object: validator},
		{name: "a change of what may change", object: validator, oldObject: validator},
		{
			name:   "a validator with two Pods, no seed and no archive",
			object: `{"spec":{"nodeType":"Validator","network":"Testnet","version":"v21","replicas":2,"validatorConfig":{"enableHistoryArchive":true}}}`,
			errors: []string{
				"spec.validatorConfig.seedSecretRef: Required value",
				"spec.replicas: Invalid value: 2: two Pods with one seed vote against each other",
				"spec.validatorConfig.historyArchiveUrls: Required value: enableHistoryArchive is set",
			},
		},
		{
			name:   "a Horizon without a database, of another registry",
			object: `{"spec":{"nodeType":"Horizon","network":"Testnet","version":"v2","image":"example.com/horizon","horizonConfig":{"stellarCoreUrl":"http://core","ingestWorkers":65}}}`,
			errors: []string{
				`spec.image: Invalid value: "example.com/horizon": must come from docker.io/stellar/`,
				"spec.horizonConfig.databaseSecretRef: Required value",
				"spec.horizonConfig.ingestWorkers: Invalid value: 65: must be at most 64",
			},
		},
		{
			name:      "another network",
			object:    `{"spec":{"nodeType":"SorobanRpc","network":"Testnet","version":"latest","sorobanConfig":{"stellarCoreUrl":"http://core"}}}`,
			oldObject: `{"spec":{"nodeType":"SorobanRpc","network":"Futurenet","version":"v1"}}`,
			errors:    []string{"spec.network: Forbidden: is immutable"},
			warnings:  []string{"spec.version: the tag latest may be another image tomorrow"},
		},
		{
			name:     "data that may be lost",
			object:   `{"spec":{"nodeType":"Validator","network":"Mainnet","version":"v21","validatorConfig":{"seedSecretRef":"seed"},"storage":{"retentionPolicy":"Delete"}}}`,
			warnings: []string{"spec.storage.retentionPolicy: the data of a node of Mainnet goes with the node"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			review := `{"request":{"operation":"CREATE","object":` + test.object + `}}`
			if test.oldObject != "" {
				review = `{"request":{"operation":"UPDATE","object":` + test.object + `,"oldObject":` + test.oldObject + `}}`
			}
			req, err := admission.RequestFromReview([]byte(review))
			if err != nil {
				t.Fatal(err)
			}
			response := (&policy{Registries: []string{"docker.io/stellar/"}}).Validate(req)
			var got []string
			for _, err := range response.FieldErrors() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(test.errors, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warnings, response.Warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if response.Allowed() != (test.errors == nil) {
				t.Errorf("allowed is %t", response.Allowed())
			}
		})
	}
}
