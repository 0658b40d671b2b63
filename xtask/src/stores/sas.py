"""Prints the query of URLs that allow these rights at an account of Azure: PROGRAM ACCOUNT KEY RIGHTS."""

import base64
import hashlib
import hmac
import sys
from urllib.parse import urlencode

account, key, rights = sys.argv[1:]
fields = {"sp": rights, "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z", "sip": "", "spr": "", "sv": "2019-12-12"}
text = "".join(f"{value}\n" for value in [account, *fields.values()])
signature = hmac.digest(base64.b64decode(key), text.encode(), hashlib.sha256)
shown = {name: value for name, value in fields.items() if value}
print(urlencode({**shown, "sig": base64.b64encode(signature).decode()}), end="")
