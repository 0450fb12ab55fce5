"""A job that completed is not a job that succeeded: its items are read, and each failed one is named (F3, N10, N12)."""

from pathlib import Path

from tests.stories.stage import ITEMS, playing, settle


async def test_a_completed_job_with_failed_items_ends_with_errors_and_names_them(tmp_path: Path) -> None:
    """The failed items are exactly those of the provider's error file, and no reader can take the end for a success."""
    # Given a provider that completes the job, though some of its items failed.
    home = settle(tmp_path, base="60s", cap="60s")
    async with playing(home, speed=10, scenario="partial-failure") as (_, client):
        # When the job is started and waited for, and the provider itself is asked what became of the items.
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        failed = (await client.get(body["errors_url"]))["items"]
        succeeded = (await client.get(f"{body['items_url']}?outcome=succeeded"))["items"]
        batch = await client.of_provider(f"batches/{body['remote_job_id']}")
        error_file = await client.of_provider(f"files/{batch['error_file_id']}/content")
        output_file = await client.of_provider(f"files/{batch['output_file_id']}/content")
        one = await client.get(f"{body['items_url']}/{error_file[0]['custom_id']}")

    # Then the operation has ended with errors, in a status of its own words, and both lists are the provider's.
    assert batch["status"] == "completed"
    assert (body["state"], body["outcome"], body["done"]) == ("completed_with_errors", "completed_with_errors", True)
    assert body["errors_url"] == f"/v1/operations/{operation_id}/items?outcome=failed"
    assert 0 < len(failed) < ITEMS
    assert [item["item_id"] for item in failed] == sorted(line["custom_id"] for line in error_file)
    assert [item["item_id"] for item in succeeded] == sorted(line["custom_id"] for line in output_file)
    assert {item["outcome"] for item in failed} == {"failed"}
    assert all(item["reason"] for item in failed)
    # ... the counts add up, in the row as in words.
    assert body["summary"]["failed"] == len(failed)
    assert body["summary"]["succeeded"] == len(succeeded) == ITEMS - len(failed)
    assert body["summary"]["total"] == ITEMS
    assert f"{len(succeeded)} of {ITEMS} items succeeded" in body["message"]
    # ... and one item is shown with the line that it came with.
    assert (one["outcome"], one["lines"]) == ("failed", [error_file[0]])
