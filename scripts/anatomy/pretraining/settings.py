"""Configuration of the pretraining study: tokenizer, model sizes, variants of attention, recipe.

Each class is a part of the `pretraining:` section. How the variants of Zhang et al. (2022,
"Unveiling Transformers with LEGO") were pretrained is not published in detail; masking is BERT's,
and what else is chosen is ours.
"""

from typing import Annotated, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from scripts.anatomy.settings import (
    ComparisonSettings,
    Heads,
    Name,
    Seeds,
    Settings,
    VariantStudySettings,
    check_known,
    distinct,
    inconsistent,
)

Share = Annotated[float, Field(ge=0, lt=1)]
BASE = "base"  # the variant that others are set against
FOLDERS = {"figures", "comparisons", "data", "tokenizer"}


class TokenizerSettings(Settings):
    """What cuts text into tokens."""

    renamed = {"vocabulary": "d_vocab"}

    model: Name | None = Field(
        None,
        description="Take the tokenizer of this one of the models; null: train one, WordPiece as "
        "BERT's, on the corpus.",
    )
    d_vocab: Annotated[int, Field(ge=32)] = Field(
        30522,
        description="Rows of the embedding. A tokenizer that is trained has as many tokens, the "
        "five special ones included; a model's may have fewer.",
    )
    alphabet: PositiveInt = Field(
        200,
        description="Letters of a tokenizer that is trained; a word with one that is rarer than "
        "these becomes [UNK].",
    )
    lowercase: bool = Field(True, description="Whether it drops case and accents.")
    documents: PositiveInt | None = Field(
        None, description="Train it on the first so many documents; null: on all."
    )


class SizeSettings(Settings):
    """Size of the models: BERT with this many layers, with heads of any kind."""

    renamed = {"layers": "n_layers", "heads": "n_heads"}
    n_layers: PositiveInt = Field(12, description="Layers.")
    d_model: PositiveInt = Field(768, description="Width; a multiple of the number of heads.")
    d_ff: PositiveInt = Field(3072, description="Width of the feed-forward layers.")
    n_heads: PositiveInt = Field(12, description="Heads of a layer, of all kinds together.")
    dropout: Share = Field(0.1, description="Dropout on hidden states and attention.")
    init: PositiveFloat | None = Field(
        0.02,
        description="Standard deviation of initial weights; null for 1 / sqrt(d_model), which "
        "suits narrow models.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_model % self.n_heads:
            message = f"{self.d_model} is not a multiple of the {self.n_heads} heads"
            raise inconsistent("d_model", message)
        return self


class PretrainingVariantSettings(Settings):
    """A model: the kinds of its heads."""

    heads: Heads = Field(Heads(), description="Kinds of heads of every layer.")
    window: PositiveInt = Field(21, description="Offsets that a convolution head sees; odd.")
    flops_of: Name | None = Field(
        None,
        description="Train for as many steps as cost what the whole training of this variant "
        "costs in floating-point operations; null: for the recipe's steps.",
    )
    rate_of: Name | None = Field(
        None, description="Take the learning rate tuned for this variant; null: its own."
    )

    @model_validator(mode="after")
    def _has_a_centre(self) -> Self:
        if self.window % 2 == 0:
            raise inconsistent("window", f"{self.window} is even, so it has no centre")
        return self


class PretrainingMaskingSettings(Settings):
    """Which tokens are to be predicted, and what stands in their place."""

    renamed = {"share": "mask_prob", "random": "random_prob", "kept": "keep_prob"}
    mask_prob: Annotated[float, Field(gt=0, le=1)] = Field(
        0.15, description="Share of the tokens, special ones left out, that are selected."
    )
    random_prob: Share = Field(0.1, description="Share of the selected that become a random token.")
    keep_prob: Share = Field(0.1, description="Share of the selected that stay as they are.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.random_prob + self.keep_prob > 1:
            message = f"random_prob + keep_prob is {self.random_prob + self.keep_prob:g}, above 1"
            raise inconsistent("keep_prob", message)
        return self


class OptimisationSettings(Settings):
    """How every variant is trained: AdamW, linear warm-up, linear decay to 0."""

    steps: PositiveInt = Field(100_000, description="Optimiser steps.")
    batch: PositiveInt = Field(256, description="Rows a step.")
    learning_rates: list[PositiveFloat] = Field(
        [5e-5, 1e-4, 2e-4, 4e-4],
        min_length=1,
        description="Peak learning rates tried for every variant, with the first seed; the one "
        "with the lowest validation loss is taken for all seeds.",
    )
    tuning_steps: PositiveInt = Field(
        10_000, description="Steps of each trial, with a warm-up and a decay of its own."
    )
    warmup: Share = Field(0.1, description="Share of the steps in which the rate rises.")
    betas: tuple[Share, Share] = Field((0.9, 0.98), description="Of AdamW.")
    weight_decay: NonNegativeFloat = Field(0.01, description="Decoupled weight decay.")
    clip: PositiveFloat | None = Field(1.0, description="Largest gradient norm.")

    _distinct = field_validator("learning_rates")(distinct)


class EvaluationSettings(Settings):
    """What is measured, on which text, and when."""

    renamed = {"held_out": "validation", "points": "eval_points"}
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.05, description="Share of the documents that no model is trained on."
    )
    rows: PositiveInt = Field(2048, description="Most rows of it that the loss is measured on.")
    eval_points: PositiveInt = Field(
        20, description="Points of the learning curves, evenly spaced over the steps."
    )
    checkpoints: PositiveInt = Field(
        8, description="Log-spaced steps whose weights are kept, the last one included."
    )


class CostSettings(Settings):
    """The table of what the variants cost."""

    lengths: list[Annotated[int, Field(ge=8)]] = Field(
        [128, 512], min_length=1, description="Tokens in a sequence."
    )
    batch: PositiveInt = Field(8, description="Sequences in a timed step.")
    repeats: PositiveInt = Field(5, description="Timed steps; the variants take turns.")

    _distinct = field_validator("lengths")(distinct)


class PretrainingSettings(VariantStudySettings):
    """The `pretraining:` section."""

    seeds: Seeds = Field(
        [0, 1, 2],
        description="One training of every variant per seed: initial weights, order of the rows "
        "and masks, the last two alike in all variants.",
    )
    corpus: Name = Field(description="A corpus of the text study, of which all is read.")
    tokenizer: TokenizerSettings = Field(
        TokenizerSettings(), description="Trained here, or a pretrained model's."
    )
    length: Annotated[int, Field(ge=8)] = Field(
        128, description="Tokens in a row, [CLS] and [SEP] included."
    )
    model: SizeSettings = Field(SizeSettings(), description="Size of all models.")
    variants: dict[Name, PretrainingVariantSettings] = Field(
        description="Named models. The others are compared with the one named base."
    )
    masking: PretrainingMaskingSettings = Field(
        PretrainingMaskingSettings(), description="What is to be predicted."
    )
    optimisation: OptimisationSettings = Field(
        OptimisationSettings(), description="How models are trained."
    )
    evaluation: EvaluationSettings = Field(
        EvaluationSettings(), description="What is measured, and when."
    )
    cost: CostSettings = Field(CostSettings(), description="Where and how costs are measured.")
    comparisons: dict[Name, ComparisonSettings] = Field(
        {}, description="Differences between variants."
    )

    @field_validator("variants")
    @classmethod
    def _base_first(
        cls, variants: dict[str, PretrainingVariantSettings]
    ) -> dict[str, PretrainingVariantSettings]:
        return {name: variants[name] for name in sorted(variants, key=lambda name: name != BASE)}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for key, name in [("corpus", self.corpus), *(("variants", name) for name in self.variants)]:
            if name in FOLDERS:
                raise inconsistent(key, f"results have a folder named {name}")
        check_known("variants", BASE, self.variants, "variant")
        for name, variant in self.variants.items():
            self._check(f"variants.{name}", variant)
        return self

    def _check(self, key: str, variant: PretrainingVariantSettings) -> None:
        """Raise for heads that do not fit, and for names of variants that do not help."""
        try:
            variant.heads.check_total(self.model.n_heads)
        except ValueError as error:
            raise inconsistent(f"{key}.heads", str(error)) from None
        for field in ("flops_of", "rate_of"):
            other = getattr(variant, field)
            if other is not None:
                check_known(f"{key}.{field}", other, self.variants, "variant")
                if getattr(self.variants[other], field) is not None:
                    raise inconsistent(f"{key}.{field}", f"{other} has a {field} itself")

    @property
    def tuned(self) -> list[str]:
        """The variants whose learning rate is tuned."""
        return [name for name, variant in self.variants.items() if not variant.rate_of]
