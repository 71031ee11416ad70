package main

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// onlyConverts reports whether an admission plugin that implements mask converts, and decides
// nothing.
func onlyConverts(mask abi.Mask) bool {
	return mask.Of(abi.KindAdmission) == abi.MaskOf(abi.Convert)
}

// anyKind is the kind converted by a plugin that is loaded for examination.
var anyKind = []metav1.GroupKind{{Group: "any.invalid", Kind: "Any"}}

var conversionReview = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "ConversionReview"}

// conversions returns the ConversionReviews among objects, and the others.
func conversions(objects []manifest.Object) (reviews, others []manifest.Object) {
	for _, o := range objects {
		if o.GroupVersionKind() == conversionReview {
			reviews = append(reviews, o)
		} else {
			others = append(others, o)
		}
	}
	return reviews, others
}

// convert answers ConversionReviews, each object separately.
func (t *trial) convert(ctx context.Context, reviews []manifest.Object) (err error) {
	for _, o := range reviews {
		request, err := admission.DecodeConversionReview(o.JSON)
		if err != nil {
			return fmt.Errorf("read ConversionReview: %w", err)
		}
		if len(request.Objects) == 0 {
			continue
		}
		t.try.converts = []metav1.GroupKind{request.GroupKind()}
		p, err := t.try.policy(ctx, t.rt, t.cfg, nil, nil)
		if err != nil {
			return err
		}
		err = t.convertEach(ctx, admission.NewEngine(p), request)
		if err = errors.Join(err, p.Close(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) convertEach(ctx context.Context, engine *admission.Engine, request *admission.ConversionRequest) error {
	t.loaded()
	for _, object := range request.Objects {
		objects, err := manifest.Read(object)
		if err != nil {
			return err
		}
		one := *request
		one.Objects = [][]byte{object}
		converted, err := engine.Convert(ctx, &one)
		word, text := "converted", ""
		if err != nil {
			word, text = "refused", err.Error()
			t.refusals++
			if trapped := t.fuel.failed(); trapped != nil {
				word = "failed"
				t.failed(trapped, "conversion of %s", describe(&objects.All[0]))
			}
		} else {
			text = string(converted[0])
		}
		t.verdicts.add(verdict{heads: admissionHeads, Object: describe(&objects.All[0]), Verdict: word, Cost: t.cost(), Message: text, bad: err != nil})
	}
	return nil
}
