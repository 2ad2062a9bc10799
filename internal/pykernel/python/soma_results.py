"""The results of the newest finished cells, kept as the bytes of their done, so that an id asked for again answers the same.

Images are most of what they can weigh: only those of the newest results are kept. Takes no lock; its owner has one.
"""
from soma_wire import CELLS_FINISHED, IMAGES_KEPT, decode, encode

GONE = "the images of this result are not kept any more: newer results have images too; show them again"


class Results:
    def __init__(self):
        self._kept = {}  # cell id -> (JSON bytes of its done, how many of them are images), oldest first

    def put(self, cell, done):
        """Keep the done (a dict) of a cell; its bytes."""
        body = encode(done)
        self._kept[cell] = body, sum(len(i["data"]) for i in done.get("images", ()))
        while len(self._kept) > CELLS_FINISHED:
            del self._kept[next(iter(self._kept))]
        left = IMAGES_KEPT
        for name, (kept, images) in reversed(self._kept.items()):
            left -= images
            if images and left < 0:
                self._kept[name] = _without_images(kept), 0
        return body

    def get(self, cell):
        """The bytes of a kept done, or None."""
        return self._kept.get(cell, (None,))[0]

    def names(self):
        """The ids, oldest first."""
        return list(self._kept)


def _without_images(body):
    done = decode(body)
    del done["images"]
    done["image_errors"] = [*done.get("image_errors", ()), GONE]
    return encode(done)
