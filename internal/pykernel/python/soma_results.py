"""The results of the newest finished cells, kept as the bytes of their done, so that an id asked for again answers the same.

Images are most of what they can weigh: only those of the newest results are kept. Takes no lock; its owner has one.
"""
from soma_wire import CELLS_FINISHED, IMAGES_KEPT, decode, encode

GONE = "the images of this result are not kept any more: newer results have images too; show them again"


class Results:
    def __init__(self):
        self._kept = {}   # cell id -> (JSON bytes of its done, how many of them are images), oldest first
        self._facts = {}  # cell id -> what code may ask of it

    def put(self, cell, done, facts=None):
        """Keep the done (a dict) of a cell and what code may ask of it; the done's bytes."""
        body = encode(done)
        self._kept[cell] = body, sum(len(i["data"]) for i in done.get("images", ()))
        self._facts[cell] = facts
        while len(self._kept) > CELLS_FINISHED:
            oldest = next(iter(self._kept))
            del self._kept[oldest], self._facts[oldest]
        left = IMAGES_KEPT
        for name, (kept, images) in reversed(self._kept.items()):
            left -= images
            if images and left < 0:
                self._kept[name] = _without_images(kept), 0
        return body

    def get(self, cell):
        """The bytes of a kept done, or None."""
        return self._kept.get(cell, (None,))[0]

    def facts(self, cell):
        """What code may ask of a kept cell, or None."""
        return self._facts.get(cell)

    def names(self):
        """The ids, oldest first."""
        return list(self._kept)


def _without_images(body):
    done = decode(body)
    del done["images"]
    done["image_errors"] = [*done.get("image_errors", ()), GONE]
    return encode(done)
