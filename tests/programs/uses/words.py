"""Text, and a tokenizer that knows its words."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SENTENCES = [
    "how to bake a loaf of bread",
    "the oven has to be hot before the bread goes in",
    "a train leaves the station at noon",
    "bake it",
    "where does the train to the coast leave from",
    "bread and butter",
    "a hot day at the coast",
    "the station is closed today",
    "flour water salt",
]


def tokenizer():
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    )
