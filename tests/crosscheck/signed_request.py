"""What a store that believes nobody finds wrong with a request: its signature, as
botocore's signer makes it of what arrived, its date, and its payload's hash."""
import calendar
import hashlib
import re
import time

import botocore.auth
import botocore.awsrequest
import botocore.credentials

SKEW = 15 * 60  # seconds that S3 allows
FORM = re.compile(r"AWS4-HMAC-SHA256 Credential=[^ ]+, SignedHeaders=([^ ]+), Signature=\w+")


def credentials(three):
    """Of an access key, a secret key and a session token, which may be empty."""
    return botocore.credentials.Credentials(three[0], three[1], three[2] or None)


def fault(method, target, headers, body, keys, region, now=None):
    """None, or the code of S3's that refuses it and the reason. `target` is as it
    was sent, `headers` are pairs; `now` is in seconds since 1970."""
    values = {name.lower(): value for name, value in headers}
    form = FORM.fullmatch(values.get("authorization", ""))
    if not form:
        return "AccessDenied", f"Authorization is {values.get('authorization')!r}"
    signed = form[1].split(";")
    for name in values:
        if (name == "host" or name.startswith("x-amz-")) and name not in signed:
            return "AccessDenied", f"{name} is not signed"
    for name in ("host", "x-amz-date", "x-amz-content-sha256"):
        if name not in values:
            return "AccessDenied", f"there is no {name}"
    if values.get("x-amz-security-token", "") != keys[2]:
        return "InvalidToken", "the session token is another"
    stamp = values["x-amz-date"]
    try:
        sent = calendar.timegm(time.strptime(stamp, botocore.auth.SIGV4_TIMESTAMP))
    except ValueError:
        return "AccessDenied", f"X-Amz-Date is {stamp!r}"
    if abs(sent - (time.time() if now is None else now)) > SKEW:
        return "RequestTimeTooSkewed", f"signed at {stamp}"
    if values["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
        return "XAmzContentSHA256Mismatch", "the payload has another hash"

    request = botocore.awsrequest.AWSRequest(method, "http://" + values["host"] + target)
    for name, value in headers:
        if name.lower() in signed:
            request.headers[name] = value
    request.context["timestamp"] = stamp
    # add_auth without its clock.
    signer = botocore.auth.S3SigV4Auth(credentials(keys), "s3", region)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    wanted = (f"AWS4-HMAC-SHA256 Credential={signer.scope(request)}, "
              f"SignedHeaders={signer.signed_headers(signer.headers_to_sign(request))}, "
              f"Signature={signer.signature(text, request)}")
    if values["authorization"] != wanted:
        return "SignatureDoesNotMatch", f"got {values['authorization']!r}, wanted {wanted!r}"
    return None
