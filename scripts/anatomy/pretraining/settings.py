"""Configuration of the pretraining study: tokenizer, model size, variants of attention, recipe.

Each class is a part of the `pretraining:` section. Zhang et al. (2022, "Unveiling Transformers with
LEGO") do not publish the details of their pretraining. Masking is BERT's; other defaults are ours.
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
    """The tokenizer of the text."""

    renamed = {"vocabulary": "d_vocab"}

    model: Name | None = Field(
        None,
        description="Name of a model whose tokenizer is used; null: train a WordPiece tokenizer, "
        "like BERT's, on the corpus.",
    )
    d_vocab: Annotated[int, Field(ge=32)] = Field(
        30522,
        description="Rows of the embedding. A trained tokenizer has as many tokens, including the "
        "five special ones; a model's may have fewer.",
    )
    alphabet: PositiveInt = Field(
        200,
        description="Number of letters of a trained tokenizer; a word with a rarer letter becomes "
        "[UNK].",
    )
    lowercase: bool = Field(True, description="Drop case and accents.")
    documents: PositiveInt | None = Field(
        None, description="Number of documents to train the tokenizer on; null: all."
    )


class SizeSettings(Settings):
    """Size of the models: BERT with heads of any kind."""

    renamed = {"layers": "n_layers", "heads": "n_heads"}
    n_layers: PositiveInt = Field(12, description="Number of layers.")
    d_model: PositiveInt = Field(768, description="Width; a multiple of the number of heads.")
    d_ff: PositiveInt = Field(3072, description="Width of the feed-forward layers.")
    n_heads: PositiveInt = Field(12, description="Heads of a layer, of all kinds together.")
    dropout: Share = Field(0.1, description="Dropout on hidden states and attention.")
    init: PositiveFloat | None = Field(
        0.02,
        description="Standard deviation of initial weights; null: 1 / sqrt(d_model), which "
        "suits narrow models.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.d_model % self.n_heads:
            message = f"expected a multiple of the {self.n_heads} heads, got {self.d_model}"
            raise inconsistent("d_model", message)
        return self


class PretrainingVariantSettings(Settings):
    """A model: the kinds of its heads."""

    heads: Heads = Field(Heads(), description="Number of heads of each kind in every layer.")
    window: PositiveInt = Field(21, description="Number of offsets of a convolution head; odd.")
    flops_of: Name | None = Field(
        None,
        description="Name of a variant. Train for the steps that cost as many floating-point "
        "operations as that variant's whole training; null: for the recipe's steps.",
    )
    rate_of: Name | None = Field(
        None, description="Name of a variant whose tuned learning rate is used; null: its own."
    )

    @model_validator(mode="after")
    def _has_a_centre(self) -> Self:
        if self.window % 2 == 0:
            raise inconsistent("window", f"expected an odd number, got {self.window}")
        return self


class PretrainingMaskingSettings(Settings):
    """The masking of tokens that are to be predicted."""

    renamed = {"share": "mask_prob", "random": "random_prob", "kept": "keep_prob"}
    mask_prob: Annotated[float, Field(gt=0, le=1)] = Field(
        0.15, description="Probability that a token, except special ones, is selected (p_m)."
    )
    random_prob: Share = Field(0.1, description="Share of the selected that become random (p_r).")
    keep_prob: Share = Field(0.1, description="Share of the selected that are kept (p_c).")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.random_prob + self.keep_prob > 1:
            message = f"random_prob + keep_prob is {self.random_prob + self.keep_prob:g}, above 1"
            raise inconsistent("keep_prob", message)
        return self


class OptimisationSettings(Settings):
    """Training of every variant: AdamW, linear warm-up, linear decay to 0."""

    steps: PositiveInt = Field(100_000, description="Optimiser steps.")
    batch: PositiveInt = Field(256, description="Rows per step.")
    learning_rates: list[PositiveFloat] = Field(
        [5e-5, 1e-4, 2e-4, 4e-4],
        min_length=1,
        description="Peak learning rates to try for every variant with the first seed. All seeds "
        "use the one with the lowest validation loss.",
    )
    tuning_steps: PositiveInt = Field(
        10_000, description="Steps of each trial, with its own warm-up and decay."
    )
    warmup: Share = Field(0.1, description="Share of the steps in the warm-up.")
    betas: tuple[Share, Share] = Field((0.9, 0.98), description="Betas of AdamW.")
    weight_decay: NonNegativeFloat = Field(0.01, description="Decoupled weight decay.")
    clip: PositiveFloat | None = Field(1.0, description="Maximum gradient norm.")

    _distinct = field_validator("learning_rates")(distinct)


class EvaluationSettings(Settings):
    """Measurements on validation text."""

    renamed = {"held_out": "validation", "points": "eval_points"}
    validation: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.05, description="Share of the documents for validation."
    )
    rows: PositiveInt = Field(2048, description="Maximum number of validation rows.")
    eval_points: PositiveInt = Field(
        20, description="Points of the learning curves, evenly spaced over the steps."
    )
    checkpoints: PositiveInt = Field(
        8, description="Log-spaced steps whose weights are kept, the last one included."
    )


class CostSettings(Settings):
    """Measurements of the variants' cost."""

    lengths: list[Annotated[int, Field(ge=8)]] = Field(
        [128, 512], min_length=1, description="Tokens in a sequence."
    )
    batch: PositiveInt = Field(8, description="Sequences in a timed step.")
    repeats: PositiveInt = Field(5, description="Timed steps; variants are timed in turn.")

    _distinct = field_validator("lengths")(distinct)


class PretrainingSettings(VariantStudySettings):
    """The `pretraining:` section."""

    seeds: Seeds = Field(
        [0, 1, 2],
        description="One training of every variant per seed: initial weights, order of the rows "
        "and masks. Order and masks are the same for all variants.",
    )
    corpus: Name = Field(description="Name of a corpus of the text study; all of it is read.")
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
        PretrainingMaskingSettings(), description="Masking."
    )
    optimisation: OptimisationSettings = Field(OptimisationSettings(), description="Training.")
    evaluation: EvaluationSettings = Field(EvaluationSettings(), description="Measurements.")
    cost: CostSettings = Field(CostSettings(), description="Measurements of cost.")
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
                raise inconsistent(key, f"{name} is the name of a folder of results")
        check_known("variants", BASE, self.variants, "variant")
        for name, variant in self.variants.items():
            self._check(f"variants.{name}", variant)
        return self

    def _check(self, key: str, variant: PretrainingVariantSettings) -> None:
        """Raise if a variant has unsuitable heads or refers to an unsuitable variant."""
        try:
            variant.heads.check_total(self.model.n_heads)
        except ValueError as error:
            raise inconsistent(f"{key}.heads", str(error)) from None
        for field in ("flops_of", "rate_of"):
            other = getattr(variant, field)
            if other is not None:
                check_known(f"{key}.{field}", other, self.variants, "variant")
                if getattr(self.variants[other], field) is not None:
                    raise inconsistent(f"{key}.{field}", f"{other} has its own {field}")

    @property
    def tuned(self) -> list[str]:
        """Return the variants whose learning rate is tuned."""
        return [name for name, variant in self.variants.items() if not variant.rate_of]
